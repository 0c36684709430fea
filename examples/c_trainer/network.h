/* SPDX-License-Identifier: Apache-2.0 */
/* A classifier with one hidden layer, in plain C: all parameters lie in one array, and all
 * gradients in another of the same layout. */
#ifndef NETWORK_H
#define NETWORK_H

#include <stddef.h>

struct network {
  int inputs, hidden, classes;
  size_t count;      /* of parameters: both layers' weights and biases */
  float* parameters; /* hidden weights, hidden biases, output weights, output biases */
  float* gradients;
  float* activations; /* of the hidden layer, then of the output */
};

/* Returns 0, or -1 without memory. Equal seeds give equal parameters. */
int network_create(struct network* net, int inputs, int hidden, int classes, unsigned seed);
void network_destroy(struct network* net);

void network_zero_gradients(struct network* net);

/* Computes the output for one example and returns the class with the highest probability. */
int network_classify(struct network* net, const float* input);

/* Adds `weight` times the gradients of one example's cross-entropy, and returns `weight` times the
 * cross-entropy. */
double network_backward(struct network* net, const float* input, int label, float weight);

/* Gradient descent. */
void network_step(struct network* net, float learning_rate);

#endif
