// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support.hpp"

namespace kolo::internal::testing_support {

// A model with buffers and dropout, an optimizer with state, and random data on each rank.
struct AdamTraining {
  AdamTraining()
      : model(::torch::nn::Linear(4, 8), ::torch::nn::BatchNorm1d(8), ::torch::nn::Dropout(0.5),
              ::torch::nn::Linear(8, 1)),
        optimizer(::torch::optim::Adam(model->parameters(), ::torch::optim::AdamOptions(0.05)),
                  model->named_parameters()) {}

  void steps(int count) {
    for (; count > 0; --count) {
      optimizer.zero_grad();
      const ::torch::Tensor input = ::torch::randn({6, 4});
      model->forward(input).square().mean().backward();
      optimizer.step();
    }
  }

  ::torch::nn::Sequential model;
  DistributedOptimizer<::torch::optim::Adam> optimizer;
};

}  // namespace kolo::internal::testing_support
