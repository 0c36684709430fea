// SPDX-License-Identifier: Apache-2.0
// A parameter of a fully sharded model.
#pragma once

#include <c10/core/Storage.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "training/optimizer/shard_gather.hpp"

namespace kolo::internal {

/// The module's tensor, which has memory only for a while, and this rank's shard of it.
struct ShardedParameter {
  /// Divides a parameter, and hides it. Throws InvalidArgument if it cannot be divided.
  ShardedParameter(std::string parameter_name, const ::torch::Tensor& tensor,
                   ShardPosition position);

  /// Takes the memory of the module's tensor away: it reads as NaN.
  void hide() noexcept;
  /// Makes the module's tensor a part of a storage.
  void show(const c10::Storage& storage);
  /// Throws InvalidArgument if the hidden tensor was written to or was given other memory.
  void require_own() const;

  /// Adds a gradient from autograd to those that were not reduced.
  void add_gradient(::torch::Tensor&& added);
  /// The elements of that sum, or zeros, in the dtype of the shard and in the order of the
  /// parameter's memory. If the shard is the whole parameter, nothing else has their memory.
  [[nodiscard]] ::torch::Tensor take_gradient();

  std::string name;
  ::torch::Tensor whole;  // the module's tensor
  ::torch::Tensor shard{};
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::vector<std::int64_t> no_strides;  // zeros
  std::int64_t elements;
  bool trains;
  std::int64_t offset = 0;  // in bytes, in the unit's storage
  ::torch::Tensor freed{};  // one NaN
  // Only for a trained parameter:
  ::torch::Tensor gradient{};     // whole, not reduced yet
  bool is_used = false;           // has made a gradient in this pass
  bool has_new_gradient = false;  // the shard had none before this pass
};

}  // namespace kolo::internal
