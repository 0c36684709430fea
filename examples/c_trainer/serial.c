/* SPDX-License-Identifier: Apache-2.0 */
/* The original trainer: one process, plain C. parallel.cpp is the same program on many ranks. */
#include <stdio.h>

#include "network.h"
#include "spirals.h"

enum { steps = 3000, batch = 96, hidden = 32 };

int main(void) {
  struct network net;
  if (network_create(&net, 2, hidden, spiral_arms, 1u) != 0) return 1;
  for (int step = 0; step < steps; ++step) {
    network_zero_gradients(&net);
    double loss = 0.0;
    for (int i = 0; i < batch; ++i) {
      const struct point p = spiral_point((unsigned)(step * batch + i));
      loss += network_backward(&net, p.x, p.arm, 1.0f / batch);
    }
    network_step(&net, 0.5f);
    if ((step + 1) % 500 == 0) printf("step %d: loss %.4f\n", step + 1, loss);
  }
  network_destroy(&net);
  return 0;
}
