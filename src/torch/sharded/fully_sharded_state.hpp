// SPDX-License-Identifier: Apache-2.0
// The state of FullySharded: the units of a model, and their part in backward.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kolo/torch/fully_sharded.hpp"
#include "torch/optimizer/backward_call.hpp"
#include "torch/optimizer/shard_groups.hpp"
#include "torch/sharded/sharded_unit.hpp"
#include "training/agreement.hpp"
#include "training/sharded/unit_schedule.hpp"

namespace kolo {

struct FullySharded::State final : internal::BackwardPart, internal::UnitListener {
  /// A parameter of the model, by all its names.
  struct Place {
    std::vector<std::string> names;
    std::size_t unit;
    std::size_t index;  // in the unit
  };

  State(::torch::nn::Module& module, const FullyShardedOptions& options, std::string name);

  /// Puts each parameter into its unit, and the units into the schedule.
  void divide();
  /// The parameters and options that must be equal on all ranks.
  [[nodiscard]] std::vector<internal::Item> items() const;

  /// Makes the functions that take any optimizer know its shards.
  void make_group();
  /// Gives the shards of all copies the same values.
  void match_replicas();

  void enter(internal::ShardedUnit& unit, bool recording) override;
  void leave(internal::ShardedUnit& unit, bool threw) override;
  void note_recorded(internal::ShardedUnit& unit, bool computes_again) override;
  void enter_backward(internal::ShardedUnit& unit, std::size_t stamp, bool is_first) override;
  void gradients_complete(internal::ShardedUnit& unit,
                          std::vector<::torch::Tensor> gradients) override;

  void before_backward() override {}
  internal::PassReducer* check_pass() override { return nullptr; }
  void end_pass() override;
  void fail_pass() noexcept override;
  void fail_unbegun_pass(const internal::GraphNodes& reached) noexcept override;
  [[nodiscard]] bool fails_slowly() const override { return true; }
  [[nodiscard]] std::size_t place_in(const internal::GraphNodes& reached) const override;
  void end_failed_pass() noexcept override;

  /// True if another copy of the model has the rank. That copy then gathers.
  [[nodiscard]] bool is_of_other_copy(int rank) const {
    return options.replicas && !options.process_set.contains(rank);
  }
  /// Makes this call of backward() end the pass.
  void begin_pass();
  [[nodiscard]] const ::torch::Tensor& shard(const Place& place) const {
    return units[place.unit]->shard(place.index);
  }

  ::torch::nn::Module& model;
  FullyShardedOptions options;
  std::string prefix;  // begins the names of operations
  std::vector<std::shared_ptr<internal::ShardedUnit>> units{};
  std::vector<std::string> unit_names{};
  std::vector<Place> places{};  // in the order of the model
  std::shared_ptr<std::atomic<int>> guards = std::make_shared<std::atomic<int>>(0);
  /// Guards the schedule: LibTorch's threads for several devices may work on one backward.
  std::mutex mutex{};
  internal::UnitSchedule schedule;
  std::shared_ptr<const internal::ShardGroup> group{};  // its shards are in the order of `places`
  std::weak_ptr<State> self{};
};

}  // namespace kolo
