/* SPDX-License-Identifier: Apache-2.0 */
/* The program of serial.c on any number of ranks, still in C. KOLO marks what is new. */
#include <stdio.h>

#include "bridge.h" /* KOLO */
#include "network.h"
#include "spirals.h"

enum { steps = 3000, batch = 96, hidden = 32 };

int main(int argc, char** argv) {
  struct network net;
  if (bridge_start(argc, argv) != 0) return 1; /* KOLO */
  if (network_create(&net, 2, hidden, spiral_arms, 1u) != 0) return 1;
  if (bridge_broadcast(net.parameters, net.count) != 0) return 1; /* KOLO */
  for (int step = 0; step < steps; ++step) {
    network_zero_gradients(&net);
    float loss = 0.0f;
    for (int i = bridge_rank(); i < batch; i += bridge_size()) { /* KOLO: this rank's examples */
      const struct point p = spiral_point((unsigned)(step * batch + i));
      loss += (float)network_backward(&net, p.x, p.arm, 1.0f / batch);
    }
    if (bridge_sum(net.gradients, net.count) != 0) return 1; /* KOLO */
    network_step(&net, 0.5f);
    if ((step + 1) % 500 != 0) continue;
    if (bridge_sum(&loss, 1) != 0) return 1; /* KOLO */
    if (bridge_rank() == 0) printf("step %d: loss %.4f\n", step + 1, loss);
  }
  network_destroy(&net);
  bridge_end(); /* KOLO */
  return 0;
}
