// SPDX-License-Identifier: Apache-2.0
#include "outer.hpp"

#include <torch/serialize.h>
#include <torch/utils.h>

#include <kolo/torch.hpp>
#include <sstream>

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

std::string OuterOptimizer::state() const {
  std::vector<torch::Tensor> tensors = common_;
  tensors.insert(tensors.end(), velocity_.begin(), velocity_.end());
  std::ostringstream stream;
  torch::save(tensors, stream);
  return stream.str();
}

void OuterOptimizer::load_state(const std::string& bytes) {
  std::vector<torch::Tensor> tensors;
  std::istringstream stream(bytes);
  torch::load(tensors, stream);
  TORCH_CHECK(tensors.size() == 2 * common_.size(), "the state has ", tensors.size(), " tensors");
  for (std::size_t i = 0; i < tensors.size(); ++i)
    TORCH_CHECK(tensors[i].sizes() == common_[i % common_.size()].sizes(),
                "the state is of another model");
  for (std::size_t i = 0; i < common_.size(); ++i) {
    common_[i].copy_(tensors[i]);
    velocity_[i].copy_(tensors[common_.size() + i]);
  }
}

std::int64_t OuterOptimizer::bytes() const {
  std::int64_t sum = 0;
  for (const torch::Tensor& tensor : common_) sum += static_cast<std::int64_t>(tensor.nbytes());
  return sum;
}

}  // namespace local_sgd
