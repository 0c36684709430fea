// SPDX-License-Identifier: Apache-2.0
// The program of serial.c on any number of ranks, in 40 lines. KOLO marks what is new.
extern "C" {
#include "network.h"
#include "spirals.h"
}
#include <cstdio>
#include <kolo/kolo.hpp>  // KOLO
#include <vector>
constexpr int steps = 3000, batch = 96, hidden = 32;

// KOLO: the C network as an optimizer: named gradients, and a step that uses them.
struct Trainer {
  network& net;
  std::vector<kolo::NamedTensor> gradients() { return {{"all", {net.gradients, {net.count}}}}; }
  std::vector<kolo::NamedTensor> parameters() { return {{"all", {net.parameters, {net.count}}}}; }
  void step() { network_step(&net, 0.5F); }
};

int main(int argc, char** argv) {
  const kolo::Session session(argc, argv);  // KOLO
  network net;
  if (network_create(&net, 2, hidden, spiral_arms, 1U) != 0) return 1;
  Trainer trainer{net};
  kolo::DistributedOptimizer optimizer(trainer, {.op = kolo::ReduceOp::sum});  // KOLO
  kolo::broadcast_parameters(trainer.parameters(), /*root=*/0);                // KOLO
  for (int step = 0; step < steps; ++step) {
    network_zero_gradients(&net);
    double loss = 0.0;
    for (int i = kolo::rank(); i < batch; i += kolo::size()) {  // KOLO: this rank's examples
      const point p = spiral_point(static_cast<unsigned>(step * batch + i));
      loss += network_backward(&net, p.x, p.arm, 1.0F / batch);
    }
    optimizer.step();  // KOLO: sums the ranks' gradients before the step
    if ((step + 1) % 500 != 0) continue;
    loss = kolo::average(loss) * kolo::size();  // KOLO
    if (kolo::rank() == 0) std::printf("step %d: loss %.4f\n", step + 1, loss);
  }
  network_destroy(&net);
}
