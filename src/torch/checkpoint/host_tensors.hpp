// SPDX-License-Identifier: Apache-2.0
// LibTorch's tensors as the contents of safetensors files.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "kolo/torch/checkpoint.hpp"

namespace kolo::internal {

/// The parameters and buffers of a module that are defined, by name.
[[nodiscard]] NamedParameters tensors_of(const ::torch::nn::Module& module);

/// True if a safetensors file can hold the tensor.
[[nodiscard]] bool is_storable(const ::torch::Tensor& tensor);

/// Tensors by name, in row-major order in the CPU's memory.
class HostTensors {
 public:
  HostTensors() = default;
  /// Adds all of them.
  explicit HostTensors(const NamedParameters& tensors);

  /// Copies the tensor unless it is there already. Throws InvalidArgument for one that is not
  /// storable, and for a repeated name.
  void add(const std::string& name, const ::torch::Tensor& tensor);
  /// Valid as long as this object.
  [[nodiscard]] const ConstTensorViews& views() const { return views_; }

 private:
  std::vector<::torch::Tensor> tensors_{};
  ConstTensorViews views_{};
};

/// A copy of the elements, on the CPU. Throws InvalidArgument, naming `name`, for a dtype that
/// LibTorch lacks.
[[nodiscard]] ::torch::Tensor tensor_of(const StoredTensor& stored, const std::string& name);

/// Copies tensors into existing ones by name. Throws InvalidArgument, beginning with `subject`, if
/// shapes differ, or names do and `options` are strict; nothing has changed then.
UnmatchedNames copy_by_name(const std::string& subject, const StateDict& from,
                            const NamedParameters& into, const SafetensorsOptions& options);

}  // namespace kolo::internal
