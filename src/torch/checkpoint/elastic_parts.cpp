// SPDX-License-Identifier: Apache-2.0
// A tensor in the state of elastic training.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <ATen/ops/empty.h>

#include <cstring>

#include "kolo/torch/elastic.hpp"
#include "torch/tensor_view.hpp"

namespace kolo::elastic::detail {

void TorchTensorPart::save(std::string& bytes) {
  const at::NoGradGuard no_grad;
  const ::torch::Tensor host = tensor_.detach().to(c10::DeviceType::CPU).contiguous();
  bytes.assign(static_cast<const char*>(host.data_ptr()), host.nbytes());
}

void TorchTensorPart::load(const std::string& bytes) {
  const at::NoGradGuard no_grad;
  const ::torch::Tensor host = at::empty(
      tensor_.sizes(), tensor_.options().device(c10::DeviceType::CPU).requires_grad(false));
  if (host.nbytes() != bytes.size()) throw_wrong_size(host.nbytes(), bytes.size());
  std::memcpy(host.data_ptr(), bytes.data(), bytes.size());
  tensor_.copy_(host);
}

}  // namespace kolo::elastic::detail
