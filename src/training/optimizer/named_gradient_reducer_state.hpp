// SPDX-License-Identifier: Apache-2.0
// The state of NamedGradientReducer: the gradients of one custom optimizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kolo/optimizer.hpp"
#include "kolo/sharded_optimizer.hpp"
#include "training/optimizer/optimizer_setup.hpp"
#include "training/optimizer/pass_reducer.hpp"

namespace kolo::internal {

/// Reduces the tensors of these slots in one reducescatter. The result is written to the place of
/// this rank's shard in each tensor.
[[nodiscard]] Future<void> scatter(std::span<const std::size_t> slots,
                                   const std::vector<Shard>& shards,
                                   const std::vector<NamedTensor>& tensors,
                                   const detail::GroupedAllreduceCall& call);

}  // namespace kolo::internal

namespace kolo::detail {

struct NamedGradientReducer::State {
  /// The memory that the program listed last.
  struct ListedGradients : internal::GradientStorage {
    std::vector<NamedTensor> tensors;
    // The shards to which gradients are reduced; empty unless a ShardedOptimizer divides gradients.
    std::vector<Shard> scattered;

    TensorView open(std::size_t slot, double /*factor*/) override { return tensors[slot].tensor; }
    Future<void> submit(std::span<const std::size_t> slots,
                        const GroupedAllreduceCall& call) override {
      return scattered.empty() ? GradientStorage::submit(slots, call)
                               : internal::scatter(slots, scattered, tensors, call);
    }
  };

  DistributedOptimizerOptions options;
  std::function<Gradients()> parameters;  // null if the optimizer has none
  std::optional<Sharding> sharding;
  std::vector<internal::Item> items;
  std::unordered_map<std::string, std::size_t> position_of;
  std::vector<bool> ready;  // by position, in this pass
  ListedGradients storage;  // filled when the first gradient of this pass becomes ready
  internal::PassReducer reducer;
  bool synchronized = false;
  bool takes_part = true;
  std::vector<Shard> shards;           // empty unless this is a ShardedOptimizer
  std::vector<std::int64_t> elements;  // number in each whole tensor; empty like `shards`
  bool unstepped = false;              // reduced, but parameters were not gathered since
  std::int64_t reduction = 0;          // increases when gradients are reduced, or begin to change
  bool changes = true;                 // gradients may have changed since the last reduction

  State(const Gradients& gradients, const DistributedOptimizerOptions& given,
        std::function<Gradients()> of, std::optional<Sharding> divided);

  [[nodiscard]] const char* subject() const {
    return sharding ? internal::sharded_subject : internal::distributed_subject;
  }
  void agree();
  void compare_parameters();
  void divide(const Gradients& gradients);
  [[nodiscard]] Gradients shards_of(const Gradients& gradients) const;
  [[nodiscard]] internal::GroupNumbers group_numbers() const;
  void add_gradients(const internal::GroupNumbers& groups);
  void require_not_synchronized(const std::string& call) const;
  void require_same(const Gradients& gradients) const;
  void require_in_place(const Gradients& gradients) const;
  void require_disjoint(const Gradients& gradients) const;
  void require_memory_for_mean(const Gradients& gradients) const;
  /// The number by which the sum of this step's passes is divided.
  [[nodiscard]] double divisor() const;
  void list(Gradients gradients);
  void reduce(Gradients gradients);
  void note_change();
  bool drop_before_join();
  void clear();
  void rejoin(const Gradients& gradients);
  void drop_step();
  void end_step();
};

}  // namespace kolo::detail
