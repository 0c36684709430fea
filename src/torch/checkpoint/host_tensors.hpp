// SPDX-License-Identifier: Apache-2.0
// LibTorch's tensors as the contents of safetensors files.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "kolo/torch/checkpoint.hpp"

namespace kolo::internal {

/// True if a safetensors file can hold the tensor.
[[nodiscard]] bool is_storable(const ::torch::Tensor& tensor);

/// Tensors by name, in row-major order in the CPU's memory.
class HostTensors {
 public:
  HostTensors() = default;
  /// Adds all `tensors`.
  explicit HostTensors(const NamedParameters& tensors);

  /// Copies the tensor unless it has this order and memory already. Throws InvalidArgument for a
  /// tensor that is not storable, and for a repeated name.
  void add(const std::string& name, const ::torch::Tensor& tensor);
  /// Views of the tensors, which are valid as long as this object.
  [[nodiscard]] const ConstTensorViews& views() const { return views_; }

 private:
  std::vector<::torch::Tensor> tensors_{};
  ConstTensorViews views_{};
};

/// Copies a stored tensor to a tensor on the CPU. Throws InvalidArgument, naming `name`, for a
/// dtype that LibTorch lacks.
[[nodiscard]] ::torch::Tensor tensor_of(const StoredTensor& stored, const std::string& name);

/// Copies tensors into existing ones by name. Throws InvalidArgument, beginning with `subject`, if
/// shapes differ, or names do and `options` are strict; nothing has changed then.
UnmatchedNames copy_by_name(const std::string& subject, const StateDict& from,
                            const NamedParameters& into, const SafetensorsOptions& options);

}  // namespace kolo::internal
