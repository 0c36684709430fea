/* SPDX-License-Identifier: Apache-2.0 */
/* The program of serial.c on any number of ranks, in C. KOLO marks what is new. */
#include <kolo/c/kolo.h> /* KOLO */
#include <stdio.h>
#include <stdlib.h>

#include "network.h"
#include "spirals.h"

enum { steps = 3000, batch = 96, hidden = 32 };

/* KOLO: ends the program after an error. The other ranks get KOLO_PEER_LEFT. */
static void check(kolo_status status) {
  if (status == KOLO_OK) return;
  fprintf(stderr, "%s: %s\n", kolo_status_name(status), kolo_last_error_message());
  exit(1);
}

int main(int argc, char** argv) {
  struct network net;
  int rank, size;
  check(kolo_init(argc, argv, NULL, 0)); /* KOLO */
  check(kolo_rank(&rank));               /* KOLO */
  check(kolo_size(&size));               /* KOLO */
  if (network_create(&net, 2, hidden, spiral_arms, 1u) != 0) return 1;

  /* KOLO: the arrays of the network as named tensors, and a sum instead of an average. */
  const int64_t count = (int64_t)net.count;
  const kolo_named_tensor parameters = {"all",
                                        {net.parameters, KOLO_F32, {KOLO_CPU, 0}, 1, &count}};
  const kolo_named_tensor gradients = {"all", {net.gradients, KOLO_F32, {KOLO_CPU, 0}, 1, &count}};
  kolo_optimizer* optimizer;
  kolo_optimizer_options options = KOLO_OPTIMIZER_OPTIONS;
  options.op = KOLO_SUM;
  check(kolo_optimizer_create(&gradients, 1, &parameters, 1, &options, &optimizer)); /* KOLO */
  check(kolo_broadcast_parameters(&parameters, 1, /*root=*/0, NULL));                /* KOLO */

  for (int step = 0; step < steps; ++step) {
    network_zero_gradients(&net);
    double loss = 0.0;
    for (int i = rank; i < batch; i += size) { /* KOLO: this rank's examples */
      const struct point p = spiral_point((unsigned)(step * batch + i));
      loss += network_backward(&net, p.x, p.arm, 1.0f / batch);
    }
    check(kolo_optimizer_begin_step(optimizer)); /* KOLO: sums the ranks' gradients */
    network_step(&net, 0.5f);
    check(kolo_optimizer_end_step(optimizer)); /* KOLO */
    if ((step + 1) % 500 != 0) continue;
    const kolo_tensor total = {&loss, KOLO_F64, {KOLO_CPU, 0}, 0, NULL};
    kolo_reduce_options sum = KOLO_REDUCE_OPTIONS;
    sum.op = KOLO_SUM;
    check(kolo_allreduce(&total, &sum)); /* KOLO */
    if (rank == 0) printf("step %d: loss %.4f\n", step + 1, loss);
  }
  check(kolo_optimizer_free(optimizer)); /* KOLO */
  network_destroy(&net);
  check(kolo_shutdown()); /* KOLO */
  return 0;
}
