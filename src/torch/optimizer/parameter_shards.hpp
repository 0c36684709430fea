// SPDX-License-Identifier: Apache-2.0
// The shards of parameters on this rank. They take the place of the parameters in the optimizer.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "torch/optimizer/parameter_names.hpp"
#include "training/optimizer/shard_gather.hpp"

namespace kolo::internal {

/// The elements of a tensor without gaps, in their order in memory. Shares the memory.
[[nodiscard]] ::torch::Tensor elements_in_memory(const ::torch::Tensor& tensor);

/// A tensor with the same memory that is not a view: LibTorch refuses to zero a gradient that is a
/// view.
[[nodiscard]] ::torch::Tensor own_tensor(const ::torch::Tensor& view);

/// One parameter and its shard. The shard has one dimension, and lies in the parameter's memory.
struct ParameterShard {
  ::torch::Tensor whole;
  ::torch::Tensor shard;
  std::int64_t elements = 0;  // in the whole parameter
  std::int64_t begin = 0;     // first element of the shard, in memory order
  std::int64_t size = 0;      // elements in the shard
  std::vector<std::int64_t> lengths{};
  std::vector<std::int64_t> strides{};
  bool shares_gradient = false;  // the shard was given its elements of the whole gradient
  bool retired = false;          // the optimizer no longer has the parameter
  bool released = false;         // the parameter is gone

  /// True if the optimizer steps the parameter. It also steps a frozen one that has a gradient.
  [[nodiscard]] bool is_stepped() const {
    return !retired && (whole.requires_grad() || shard.grad().defined());
  }
  /// This rank's elements of a tensor that is laid out like the parameter.
  [[nodiscard]] ::torch::Tensor shard_of(const ::torch::Tensor& tensor) const;
};

/// The shards of all parameters of an optimizer.
class ParameterShards {
 public:
  explicit ParameterShards(ShardPosition position) : position_(position) {}

  /// Replaces parameters in the optimizer's groups by their shards, and divides their state. A
  /// further call adopts parameters that were added since, and moves shards to memory that the
  /// program has given to a parameter, as `torch::load` does. Throws InvalidArgument for a
  /// parameter that has gaps, or another shape, dtype or device than before, and for state that
  /// cannot be divided.
  void adopt(::torch::optim::Optimizer& optimizer, const ParameterNames& names);

  /// Frees the shard of a retired parameter, in whose place `empty` is from now on, which has no
  /// elements. The next `adopt` removes the shard's state from the optimizer.
  void release(const ::torch::Tensor& whole, const ::torch::Tensor& empty);

  /// The optimizer's groups with whole parameters, without options.
  [[nodiscard]] const ParameterGroups& whole_groups() const { return whole_groups_; }

  /// In the optimizer's order; each parameter once.
  [[nodiscard]] std::deque<ParameterShard>& all() { return shards_; }
  [[nodiscard]] ParameterShard& of_whole(const ::torch::Tensor& whole);
  /// Null for a tensor that is not a shard.
  [[nodiscard]] const ParameterShard* of_shard(const ::torch::Tensor& shard) const;

 private:
  ParameterShard& add(const ::torch::Tensor& whole, const std::string& name);
  void follow_memory();
  void note_retired(const ParameterGroups& groups);
  [[nodiscard]] static bool is_laid_out_as_before(const ParameterShard& shard);

  ShardPosition position_;
  ParameterGroups whole_groups_;
  std::deque<ParameterShard> shards_;
  std::vector<std::string> names_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> by_whole_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> by_shard_;
};

}  // namespace kolo::internal
