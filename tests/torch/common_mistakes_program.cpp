// SPDX-License-Identifier: Apache-2.0
// A training with one of the mistakes that beginners make. Prints what they then read.
//
// Usage: common_mistakes_program no_broadcast|unequal_batches|no_join
#include <kolo/torch.hpp>  // before LibTorch, as clang 14 needs it

#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string_view>

namespace {

using namespace std::chrono_literals;

void train(std::string_view mistake) {
  ::torch::manual_seed(static_cast<std::uint64_t>(kolo::rank()));
  ::torch::nn::Linear model(4, 1);
  if (mistake != "no_broadcast") kolo::broadcast_parameters(*model, 0);
  kolo::DistributedOptimizer optimizer(::torch::optim::SGD(model->parameters(), 0.1), *model);
  double loss_value = 0.0;
  const int batches = mistake == "no_broadcast" ? 1 : 3 - kolo::rank();
  for (int batch = 0; batch < batches; ++batch) {
    optimizer.zero_grad();
    const ::torch::Tensor loss = model->forward(::torch::randn({8, 4})).square().mean();
    loss.backward();
    optimizer.step();
    loss_value = loss.item<double>();
  }
  if (mistake == "unequal_batches") static_cast<void>(kolo::average(loss_value));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mistake = argc > 1 ? argv[1] : "";
  try {
    // A stall ends the program, which would otherwise wait for ever. Its report comes before that.
    kolo::SessionOptions options{};
    options.stall_warning = 1h;
    options.stall_shutdown = 3s;
    const kolo::Session session(options);
    train(mistake);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
