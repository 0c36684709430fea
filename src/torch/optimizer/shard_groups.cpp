// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/optimizer/shard_groups.hpp"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#include "kolo/torch/collectives.hpp"

namespace kolo::internal {
namespace {

/// All groups of the process, by the addresses of their shards.
class ShardGroups {
 public:
  static ShardGroups& instance() {
    static ShardGroups groups;
    return groups;
  }

  void add(const std::shared_ptr<const ShardGroup>& group) {
    const std::lock_guard lock(mutex_);
    std::erase_if(by_shard_, [](const auto& entry) { return entry.second.expired(); });
    for (const ParameterShard& shard : group->shards)
      by_shard_[shard.shard.unsafeGetTensorImpl()] = group;
  }

  [[nodiscard]] std::shared_ptr<const ShardGroup> find(const ::torch::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    const auto found = by_shard_.find(tensor.unsafeGetTensorImpl());
    return found == by_shard_.end() ? nullptr : found->second.lock();
  }

 private:
  std::mutex mutex_{};  // guards the member below
  std::unordered_map<const c10::TensorImpl*, std::weak_ptr<const ShardGroup>> by_shard_{};
};

}  // namespace

bool ShardGroup::all_ranks(bool condition) const {
  std::int32_t all = condition ? 1 : 0;
  allreduce(all, {.name = operation + "agreement", .op = ReduceOp::min, .process_set = set});
  return all != 0;
}

::torch::Tensor ShardGroup::on_any_rank(::torch::Tensor own) const {
  if (own.is_cpu()) return at::scalar_tensor(all_ranks(own.item<float>() == 0.0F) ? 0.0F : 1.0F);
  allreduce_(own, {.name = operation + "not finite", .op = ReduceOp::max, .process_set = set});
  return own;
}

const ParameterShard* ShardGroup::of_shard(const ::torch::Tensor& tensor) const {
  const auto found = std::ranges::find_if(
      shards, [&](const ParameterShard& shard) { return shard.shard.is_same(tensor); });
  return found == shards.end() ? nullptr : &*found;
}

void add_shard_group(const std::shared_ptr<const ShardGroup>& group) {
  ShardGroups::instance().add(group);
}

std::shared_ptr<const ShardGroup> shard_group_of(const ParameterGroups& groups) {
  std::shared_ptr<const ShardGroup> group;
  bool has_others = false;
  for_each_parameter(groups, [&](std::size_t, std::size_t, const ::torch::Tensor& parameter) {
    const auto found = ShardGroups::instance().find(parameter);
    if (!found || (group && group->set.ranks() != found->set.ranks())) {
      has_others = true;
    } else if (!group) {
      group = found;
    }
  });
  if (group && has_others)
    throw InvalidArgument(
        "this optimizer has shards of a FullySharded model and other parameters, or shards of "
        "other "
        "ranks. Give each an optimizer of its own");
  return group;
}

void refuse_shards(const ParameterGroups& groups, const std::string& subject) {
  for_each_parameter(groups, [&](std::size_t, std::size_t, const ::torch::Tensor& parameter) {
    if (ShardGroups::instance().find(parameter))
      throw InvalidArgument(subject +
                            ": the tensors are this rank's shards of a FullySharded model. It "
                            "reduces their gradients by itself: give them to an optimizer of "
                            "LibTorch's");
  });
}

}  // namespace kolo::internal
