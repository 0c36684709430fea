// SPDX-License-Identifier: Apache-2.0
// The state of a ShardedOptimizer: in full, and as shards that each rank saves as a part of its
// own.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <ATen/ops/empty_like.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "kolo/torch/checkpoint.hpp"
#include "torch/checkpoint/host_tensors.hpp"
#include "torch/checkpoint/optimizer_state.hpp"
#include "torch/checkpoint/shard_collector.hpp"
#include "torch/optimizer/sharded_reducer_state.hpp"
#include "torch/tensor_view.hpp"
#include "training/agreement.hpp"
#include "training/optimizer/shard_gather.hpp"

namespace kolo::detail {

using namespace internal;
namespace {

ShardFinder finder(const ParameterShards& shards) {
  return [&shards](const ::torch::Tensor& tensor) { return shards.of_shard(tensor); };
}

}  // namespace

// Keeps the state that an optimizer, such as Adagrad, has before the first step.
void ShardedReducer::State::keep_undivided(const Optimizer& optimizer) {
  if (!agreements_are_deferred() || optimizer.state().empty()) return;
  const auto unchanged = [](const ::torch::Tensor&, const ::torch::Tensor& value) { return value; };
  if (auto saved = save_optimizer(optimizer, unchanged)) loaded = saved->copy();
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
    load_optimizer(state_->loaded, optimizer, finder(*state_->shards));
    for (std::size_t i = 0; i < groups.size(); ++i) groups[i].set_options(std::move(options[i]));
  }
}

std::string ShardedReducer::place() const {
  return state_->is_member ? shard_place_text(state_->position) : "";
}

StateDict ShardedReducer::full_state(const Optimizer& optimizer, int root) const {
  const ProcessSet& set = state_->options.process_set;
  if (root != all_ranks_get_it) require_root("full_state", root, set);
  if (!state_->is_member) return {};
  if (const std::string why = obstacle_to_saving(optimizer); !why.empty())
    throw InvalidArgument("full_state: the optimizer's state cannot be saved: " + why);
  const bool gets_it = root == all_ranks_get_it || rank() == root;
  const at::NoGradGuard no_grad;
  const auto whole_of = [&](const ::torch::Tensor& tensor, const ::torch::Tensor& value) {
    const ParameterShard* shard = state_->shards->of_shard(tensor);
    if (shard == nullptr) return ::torch::Tensor();  // added since the last step
    ::torch::Tensor whole = at::empty_like(shard->whole, value.options());
    ShardGather gather(set);
    add_to(gather, value, whole);
    gather.run(state_->operation("(state)"));
    return gets_it ? whole : ::torch::Tensor();
  };
  const std::optional<StateView> saved = save_optimizer(optimizer, whole_of);
  return gets_it ? saved.value().copy() : StateDict();
}

void ShardedReducer::load_full_state(const StateView& state, Optimizer& optimizer) {
  state_->shards->adopt(optimizer, state_->names);
  load_optimizer(state, optimizer, finder(*state_->shards));
  if (agreements_are_deferred()) state_->loaded = state.copy();
}

void ShardedReducer::load_sharded_state(const std::vector<StateView>& saved, Optimizer& optimizer) {
  const auto read = [&] {
    state_->shards->adopt(optimizer, state_->names);
    const auto numbered = shards_by_number(optimizer, finder(*state_->shards));
    load_optimizer(collect_optimizer_shards(saved, numbered, place()), optimizer);
  };
  const std::string subject = "ShardedOptimizer::load_sharded_state: ";
  if (state_->is_member)
    return share_failure("kolo.sharded_load", subject, read, state_->options.process_set);
  if (const std::string failure = failure_of(read); !failure.empty())
    throw Error(subject + failure);
}

std::string ShardedReducer::describe_parameters(const Optimizer& optimizer) const {
  return describe(shards_by_number(optimizer, finder(*state_->shards)));
}

}  // namespace kolo::detail
