// SPDX-License-Identifier: Apache-2.0
// The state of a ShardedOptimizer: in full, and in the files of all ranks.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <ATen/ops/empty_like.h>

#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "kolo/torch/checkpoint.hpp"
#include "torch/checkpoint/optimizer_state.hpp"
#include "torch/checkpoint/shard_files.hpp"
#include "torch/gpu_stream.hpp"
#include "torch/optimizer/sharded_reducer_state.hpp"
#include "training/agreement.hpp"
#include "training/checkpoint/index_files.hpp"

namespace kolo::detail {

using namespace internal;
namespace {

std::string unlikely_key() {
  std::random_device random;
  return std::to_string(random()) + '-' + std::to_string(random());
}

}  // namespace

// Keeps the state that an optimizer, such as Adagrad, has before the first step.
void ShardedReducer::State::keep_undivided(const Optimizer& optimizer) {
  if (!agreements_are_deferred() || optimizer.state().empty()) return;
  const auto unchanged = [](const ::torch::Tensor&, const ::torch::Tensor& value) { return value; };
  if (auto saved = save_optimizer(optimizer, unchanged)) loaded = *std::move(saved);
}

void ShardedReducer::rejoin(Optimizer& optimizer) {
  require_world_to_rejoin(state_->options.process_set, sharded_subject);
  const ProcessSet& set = state_->options.process_set;
  // State that was loaded before the first commit is kept if this rank's shards stay the same.
  const bool has_same_shards = state_->position == ShardPosition::in(set);
  const StateDict kept =
      has_same_shards && !optimizer.state().empty() ? kolo::state(optimizer) : StateDict();
  state_->reunite(optimizer);
  state_->divide(optimizer);
  if (!kept.empty()) {
    load_state(optimizer, kept);
  } else if (!state_->loaded.empty()) {
    auto& groups = optimizer.param_groups();
    // The program may have changed the options since the state was loaded, so they are put back.
    std::vector<std::unique_ptr<::torch::optim::OptimizerOptions>> options;
    options.reserve(groups.size());
    for (const auto& group : groups) options.push_back(group.options().clone());
    load_optimizer(state_->loaded, optimizer, state_->shards.get());
    for (std::size_t i = 0; i < groups.size(); ++i) groups[i].set_options(std::move(options[i]));
  }
}

std::string ShardedReducer::place() const {
  const ProcessSet& set = state_->options.process_set;
  return state_->is_member ? shard_place_text(set.rank(), set.size()) : shard_place_text(0, 1);
}

StateDict ShardedReducer::full_state(const Optimizer& optimizer, int root) const {
  const ProcessSet& set = state_->options.process_set;
  if (root != all_ranks_get_it) require_root("full_state", root, set);
  if (!state_->is_member) return {};
  if (const std::string why = obstacle_to_saving(optimizer); !why.empty())
    throw InvalidArgument("full_state: the optimizer's state cannot be saved: " + why);
  const bool gets_it = root == all_ranks_get_it || rank() == root;
  const at::NoGradGuard no_grad;
  const auto whole_of = [&](const ::torch::Tensor& part, const ::torch::Tensor& value) {
    const ParameterShard* shard = state_->shards->of_shard(part);
    if (shard == nullptr) return ::torch::Tensor();  // added since the last step
    ::torch::Tensor whole = at::empty_like(shard->whole, value.options());
    const StreamOf stream(whole);
    ShardGather gather(set);
    add_to(gather, value, whole);
    gather.run(state_->operation("(state)"));
    return gets_it ? whole : ::torch::Tensor();
  };
  std::optional<StateDict> saved = save_optimizer(optimizer, whole_of);
  return gets_it ? std::move(saved).value() : StateDict();
}

void ShardedReducer::load_full_state(const StateDict& state, Optimizer& optimizer) {
  state_->shards->adopt(optimizer, state_->names);
  load_optimizer(state, optimizer, state_->shards.get());
  if (agreements_are_deferred()) state_->loaded = state;
}

void ShardedReducer::save(const std::filesystem::path& folder, Optimizer& optimizer) {
  if (!state_->is_member) return;
  const ProcessSet& set = state_->options.process_set;
  const int first = set.ranks().front();
  std::string key;
  const std::string subject = "ShardedOptimizer::save: ";
  const auto make_folder = [&] {
    if (rank() != first) return;
    key = unlikely_key();
    begin_shard_folder(folder);
  };
  share_failure("kolo.sharded_save.folder", subject, make_folder, set);
  broadcast(key, first, {.name = state_->operation("(save)"), .process_set = set});
  const auto write = [&] {
    state_->shards->adopt(optimizer, state_->names);
    write_shard(folder, key, ShardPosition::in(set), optimizer, *state_->shards);
  };
  share_failure("kolo.sharded_save.write", subject, write, set);
  const auto write_index = [&] {
    if (rank() == first) write_shard_index(folder, {.key = key, .ranks = set.size()});
  };
  share_failure("kolo.sharded_save.index", subject, write_index, set);
}

void ShardedReducer::load(const std::filesystem::path& folder, Optimizer& optimizer) {
  const std::string subject = "ShardedOptimizer::load: ";
  const auto read = [&] {
    state_->shards->adopt(optimizer, state_->names);
    read_shards(folder, optimizer, *state_->shards, place());
  };
  if (state_->is_member)
    return share_failure("kolo.sharded_load.read", subject, read, state_->options.process_set);
  if (const std::string failure = failure_of(read); !failure.empty())
    throw Error(subject + failure);
}

}  // namespace kolo::detail
