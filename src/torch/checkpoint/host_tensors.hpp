// SPDX-License-Identifier: Apache-2.0
// LibTorch's tensors as the contents of safetensors files.
#pragma once

#include <torch/types.h>

#include <string>

#include "kolo/torch/checkpoint.hpp"

namespace kolo::internal {

/// True if a safetensors file can hold the tensor.
[[nodiscard]] bool is_storable(const ::torch::Tensor& tensor);

/// Adds a tensor, which the view keeps alive. It is copied to the CPU's memory when it is read.
/// Throws InvalidArgument for a tensor that is not storable, and for a repeated name.
void add_tensor(StateView& view, const std::string& name, const ::torch::Tensor& tensor);

/// Reads a tensor into a tensor on the CPU. Throws InvalidArgument, naming `name`, for a dtype that
/// LibTorch lacks.
[[nodiscard]] ::torch::Tensor tensor_of(const TensorSource& source, const std::string& name);

/// Copies tensors into existing ones by name. Throws InvalidArgument, beginning with `subject`, if
/// shapes differ, or names do and `options` are strict; nothing has changed then.
UnmatchedNames copy_by_name(const std::string& subject, const StateView& from,
                            const NamedParameters& into, const SafetensorsOptions& options);

}  // namespace kolo::internal
