// SPDX-License-Identifier: Apache-2.0
#include "outer.hpp"

#include <torch/utils.h>

#include <kolo/torch.hpp>

namespace local_sgd {

OuterOptimizer::OuterOptimizer(const std::vector<torch::Tensor>& parameters, double rate,
                               double momentum)
    : parameters_(parameters), rate_(rate), momentum_(momentum) {
  for (const torch::Tensor& parameter : parameters) {
    common_.push_back(parameter.detach().clone());
    velocity_.push_back(torch::zeros_like(common_.back()));
  }
}

void OuterOptimizer::step() {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> distances;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    distances.push_back(common_[i] - parameters_[i]);
  kolo::grouped_allreduce_(distances);  // KOLO: the average over the ranks
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    velocity_[i].mul_(momentum_).add_(distances[i]);
    common_[i].sub_(distances[i].add(velocity_[i], momentum_), rate_);
    parameters_[i].copy_(common_[i]);
  }
}

std::int64_t OuterOptimizer::bytes() const {
  std::int64_t sum = 0;
  for (const torch::Tensor& tensor : common_) sum += static_cast<std::int64_t>(tensor.nbytes());
  return sum;
}

}  // namespace local_sgd
