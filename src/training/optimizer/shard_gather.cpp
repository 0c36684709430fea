// SPDX-License-Identifier: Apache-2.0
#include "training/optimizer/shard_gather.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "kolo/error.hpp"

namespace kolo::internal {

namespace {

std::vector<std::int64_t> shard_sizes(std::int64_t elements, int ranks) {
  std::vector<std::int64_t> sizes;
  for (int index = 0; index < ranks; ++index)
    sizes.push_back(ShardPosition{index, ranks}.size(elements));
  return sizes;
}

}  // namespace

ShardPosition ShardPosition::of_member(const ProcessSet& set, const std::string& subject) {
  if (set.rank() < 0)
    throw InvalidArgument(subject + ": this rank is not a member of the process set");
  return in(set);
}

ShardGather::ShardGather(ProcessSet set) : set_(std::move(set)) {}

void ShardGather::add(const ConstTensorView& shard, const TensorView& whole,
                      std::function<void*()> elsewhere) {
  sources_.push_back(shard);
  // Sizes and members are taken now, because an allocator must not call Kolo.
  allocators_.emplace_back([this, data = whole.data(), elsewhere = std::move(elsewhere),
                            expected = shard_sizes(whole.elements(), set_.size()),
                            members = set_.ranks()](std::span<const std::int64_t> sizes) -> void* {
    std::vector<int> joined;
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (sizes[i] != expected[i]) joined.push_back(members[i]);
    if (joined.empty()) return data;
    joined_ = std::move(joined);
    return elsewhere();
  });
}

void ShardGather::run(const std::string& name) {
  if (sources_.empty()) return;
  const AllgatherOptions options{.name = name, .process_set = set_};
  detail::call(detail::AllgatherCall{sources_, allocators_, options});
  if (joined_.empty()) return;
  throw Mismatch(
      fmt::format("ShardedOptimizer: every rank has a shard of each parameter, but these "
                  "have called join(): {}. A rank without data calls step() instead",
                  fmt::join(joined_, ", ")),
      name, joined_);
}

void gather_nothing(const std::string& name, const ProcessSet& set) {
  const std::vector<std::uint8_t> nothing;
  (void)allgather(nothing, {.name = name, .process_set = set});
}

// Ranks that have joined make a reducescatter undefined, so the other ranks get Mismatch.
void require_all_ranks(const std::string& name, const ProcessSet& set) {
  const std::vector<std::int32_t> nothing(static_cast<std::size_t>(set.size()));
  (void)reducescatter(nothing, {.name = name, .op = ReduceOp::sum, .process_set = set});
}

void require_divisible(const DistributedOptimizerOptions& options, Sharding sharding) {
  if (options.op == ReduceOp::adasum)
    throw InvalidArgument("ShardedOptimizer: adasum needs whole gradients on every rank");
  if (options.hook && sharding != Sharding::state)
    throw InvalidArgument(
        "ShardedOptimizer: a communication hook leaves whole gradients on every rank. Use "
        "Sharding::state");
}

std::string describe(Sharding sharding) {
  return sharding == Sharding::state ? ", state in shards" : ", gradients in shards";
}

ReducescatterOptions reducescatter_options(const GroupedAllreduceOptions& options) {
  return {.name = options.name,
          .op = options.op,
          .prescale = options.prescale,
          .postscale = options.postscale,
          .compression = options.compression,
          .process_set = options.process_set};
}

}  // namespace kolo::internal
