/* SPDX-License-Identifier: Apache-2.0 */
#include "network.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where a layer's weights [outputs][inputs] and biases [outputs] begin in either array. */
struct layer {
  float *weights, *biases;
};

static struct layer hidden_layer(const struct network* net, float* array) {
  struct layer layer = {array, array + (size_t)net->hidden * net->inputs};
  return layer;
}

static struct layer output_layer(const struct network* net, float* array) {
  float* begin = hidden_layer(net, array).biases + net->hidden;
  struct layer layer = {begin, begin + (size_t)net->classes * net->hidden};
  return layer;
}

/* Uniform in -1 to 1: a linear congruential generator (Numerical Recipes), the same everywhere. */
static float draw(unsigned* state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

int network_create(struct network* net, int inputs, int hidden, int classes, unsigned seed) {
  memset(net, 0, sizeof *net);
  net->inputs = inputs;
  net->hidden = hidden;
  net->classes = classes;
  net->count = (size_t)hidden * (inputs + 1) + (size_t)classes * (hidden + 1);
  net->parameters = calloc(net->count, sizeof *net->parameters);
  net->gradients = calloc(net->count, sizeof *net->gradients);
  net->activations = calloc((size_t)hidden + classes, sizeof *net->activations);
  if (!net->parameters || !net->gradients || !net->activations) {
    network_destroy(net);
    return -1;
  }
  float* first = hidden_layer(net, net->parameters).weights;
  float* second = output_layer(net, net->parameters).weights;
  for (int i = 0; i < hidden * inputs; ++i) first[i] = 2.0f * draw(&seed);
  for (int i = 0; i < classes * hidden; ++i) second[i] = draw(&seed) / sqrtf((float)hidden);
  return 0;
}

void network_destroy(struct network* net) {
  free(net->parameters);
  free(net->gradients);
  free(net->activations);
  memset(net, 0, sizeof *net);
}

void network_zero_gradients(struct network* net) {
  memset(net->gradients, 0, net->count * sizeof *net->gradients);
}

static float affine(const struct layer* layer, int output, const float* x, int inputs) {
  float sum = layer->biases[output];
  for (int i = 0; i < inputs; ++i) sum += layer->weights[output * inputs + i] * x[i];
  return sum;
}

int network_classify(struct network* net, const float* input) {
  const struct layer first = hidden_layer(net, net->parameters);
  const struct layer second = output_layer(net, net->parameters);
  float *h = net->activations, *p = h + net->hidden;
  for (int j = 0; j < net->hidden; ++j) h[j] = tanhf(affine(&first, j, input, net->inputs));
  int best = 0;
  for (int k = 0; k < net->classes; ++k) {
    p[k] = affine(&second, k, h, net->hidden);
    if (p[k] > p[best]) best = k;
  }
  const float highest = p[best];
  float sum = 0.0f;
  for (int k = 0; k < net->classes; ++k) sum += p[k] = expf(p[k] - highest);
  for (int k = 0; k < net->classes; ++k) p[k] /= sum;
  return best;
}

double network_backward(struct network* net, const float* input, int label, float weight) {
  network_classify(net, input);
  const struct layer second = output_layer(net, net->parameters);
  const struct layer d_first = hidden_layer(net, net->gradients);
  const struct layer d_second = output_layer(net, net->gradients);
  const float *h = net->activations, *p = h + net->hidden;
  for (int k = 0; k < net->classes; ++k) {
    const float d = weight * (p[k] - (k == label ? 1.0f : 0.0f));
    d_second.biases[k] += d;
    for (int j = 0; j < net->hidden; ++j) d_second.weights[k * net->hidden + j] += d * h[j];
  }
  for (int j = 0; j < net->hidden; ++j) {
    float d = 0.0f;
    for (int k = 0; k < net->classes; ++k)
      d += weight * (p[k] - (k == label ? 1.0f : 0.0f)) * second.weights[k * net->hidden + j];
    d *= 1.0f - h[j] * h[j];
    d_first.biases[j] += d;
    for (int i = 0; i < net->inputs; ++i) d_first.weights[j * net->inputs + i] += d * input[i];
  }
  return -(double)weight * log((double)p[label] + 1e-30);
}

void network_step(struct network* net, float learning_rate) {
  for (size_t i = 0; i < net->count; ++i) net->parameters[i] -= learning_rate * net->gradients[i];
}
