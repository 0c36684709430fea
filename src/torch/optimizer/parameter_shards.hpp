// SPDX-License-Identifier: Apache-2.0
// Parts of parameters: a rank's share of each, as its optimizer sees them.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "torch/optimizer/parameter_names.hpp"

namespace kolo::internal {

/// All elements of a tensor without gaps, in their order in memory; shares the memory.
[[nodiscard]] ::torch::Tensor elements_in_memory(const ::torch::Tensor& tensor);

/// The same memory as a tensor of its own. LibTorch refuses to zero a gradient that is a view.
[[nodiscard]] ::torch::Tensor own_tensor(const ::torch::Tensor& view);

/// One parameter. The part has one dimension, and lies in the parameter's memory.
struct ParameterShard {
  ::torch::Tensor whole;
  ::torch::Tensor part;
  std::int64_t elements = 0;  // of the parameter
  std::int64_t begin = 0;     // of the part, in the order of the parameter's memory
  std::int64_t size = 0;      // of the part
  std::vector<std::int64_t> lengths{};
  std::vector<std::int64_t> strides{};
  bool shares_gradient = false;  // the part was given its elements of the whole gradient

  /// Also a frozen parameter is, if it has a gradient of zero.
  [[nodiscard]] bool is_stepped() const { return whole.requires_grad() || part.grad().defined(); }
  /// This rank's elements of a tensor that is laid out as the parameter.
  [[nodiscard]] ::torch::Tensor part_of(const ::torch::Tensor& tensor) const;
};

/// Parameters are divided by `reducescatter_rows`: their elements are the rows.
class ParameterShards {
 public:
  /// `index`: of this rank among `ranks`.
  ParameterShards(int index, int ranks) : index_(index), ranks_(ranks) {}

  /// Replaces parameters in the optimizer's groups by their parts, and divides their state.
  /// Parameters that were added since the last call follow, and memory that a program has given to
  /// a parameter, as `torch::load` does. Throws InvalidArgument for a parameter that has gaps, or
  /// another shape, dtype or device than before, and for state that cannot be divided.
  void adopt(::torch::optim::Optimizer& optimizer, const ParameterNames& names);

  /// The optimizer's groups with whole parameters, without options.
  [[nodiscard]] const ParameterGroups& whole_groups() const { return whole_groups_; }

  /// In the optimizer's order; each parameter once.
  [[nodiscard]] std::deque<ParameterShard>& all() { return shards_; }
  [[nodiscard]] ParameterShard& of_whole(const ::torch::Tensor& whole);
  /// Null for a tensor that is not a part.
  [[nodiscard]] const ParameterShard* of_part(const ::torch::Tensor& part) const;

 private:
  ParameterShard& add(const ::torch::Tensor& whole, const std::string& name);
  void follow_memory();
  [[nodiscard]] static bool is_laid_out_as_before(const ParameterShard& shard);

  int index_;
  int ranks_;
  ParameterGroups whole_groups_;
  std::deque<ParameterShard> shards_;
  std::vector<std::string> names_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> by_whole_;
  std::unordered_map<const c10::TensorImpl*, std::size_t> by_part_;
};

}  // namespace kolo::internal
