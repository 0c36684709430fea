// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "kolo/torch/collectives.hpp"
#include "torch/optimizer/optimizer_gradients.hpp"
#include "torch/optimizer/shard_groups.hpp"
#include "torch/optimizer/sharded_reducer_state.hpp"
#include "torch/tensor_view.hpp"

namespace kolo::detail {

using namespace internal;

void add_to(ShardGather& gather, const ::torch::Tensor& shard, const ::torch::Tensor& whole) {
  gather.add(view_of(shard), view_of(elements_in_memory(whole)),
             [whole, memory = ::torch::Tensor()]() mutable {
               memory = at::empty_like(whole);
               return memory.data_ptr();
             });
}

GradientReducer& ShardedReducer::State::live() {
  if (is_live) return *reducer;
  throw InvalidArgument(
      "ShardedOptimizer: its last rejoin() has failed, and must be repeated before anything else");
}

void ShardedReducer::State::require_all_ranks() {
  if (!storage && is_member)
    internal::require_all_ranks(operation("(backward)"), options.process_set);
}

void ShardedReducer::State::share_gradients() {
  const at::NoGradGuard no_grad;
  for (ParameterShard& shard : shards->all()) {
    ::torch::Tensor gradient = shard.whole.grad();
    if (!gradient.defined()) {
      shard.shard.mutable_grad().reset();
      shard.shares_gradient = false;
      continue;
    }
    if (gradient.layout() == at::kSparse) {
      gradient = gradient.to_dense();
      shard.whole.mutable_grad() = gradient;
    }
    if (!same_layout(gradient, shard.whole)) {
      const ::torch::Tensor other = std::exchange(gradient, at::empty_like(shard.whole));
      gradient.copy_(other);
      // The copy becomes the whole gradient too, because clipping the shard must change it.
      whole_storage->move_gradient(shard.whole, gradient);
    }
    shard.shard.mutable_grad() = own_tensor(shard.shard_of(gradient));
    shard.shares_gradient = true;
  }
}

void ShardedReducer::State::gather_parameters(bool stepped) {
  if (!is_member) return;
  const at::NoGradGuard no_grad;
  ShardGather gather(options.process_set);
  ParameterShard* first = nullptr;
  for (ParameterShard& shard : shards->all()) {
    if (!shard.is_stepped()) continue;
    if (first == nullptr) first = &shard;
    if (stepped) add_to(gather, shard.shard, shard.whole);
  }
  if (first == nullptr) return;
  // The gather has the name of the summary that ends each pass. So a rank that goes on to the next
  // pass without a step gets Mismatch.
  const std::string name = operation("(backward)");
  if (stepped) {
    gather.run(name);
  } else {
    gather_nothing(name, options.process_set);
  }
  for (ParameterShard& shard : shards->all())
    if (stepped && shard.is_stepped()) mark_changed(shard.whole);
}

ShardedReducer::ShardedReducer(Optimizer& optimizer, const std::optional<NamedParameters>& names,
                               const DistributedOptimizerOptions& options, Sharding sharding)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.options = options;
  state.sharding = sharding;
  state.given_names = names;
  require_divisible(state.options, sharding);
  refuse_shards(optimizer.param_groups(), sharded_subject);
  state.options.sparse_as_dense = true;
  state.is_member = state.options.process_set.rank() >= 0;
  if (names) {
    state.names = ParameterNames(*names, sharded_subject);
    state.names.require_all(optimizer.param_groups(), sharded_subject);
  }
  state.divide(optimizer);
}

void ShardedReducer::State::divide(Optimizer& optimizer) {
  position = ShardPosition::in(options.process_set);
  shards = std::make_shared<ParameterShards>(position);
  keep_undivided(optimizer);
  shards->adopt(optimizer, names);
  std::shared_ptr<TorchGradientStorage> made;
  if (sharding == Sharding::state) {
    made = whole_storage = std::make_shared<WholeGradientStorage>(options, shards);
  } else {
    made = storage = std::make_shared<ShardGradientStorage>(options, shards);
  }
  if (reducer) {
    reducer->rejoin(shards->whole_groups(), std::move(made));
  } else {
    reducer.emplace(shards->whole_groups(), std::exchange(given_names, {}), options,
                    /*watches_steps=*/true, std::move(made));
  }
  is_live = true;
}

void ShardedReducer::State::reunite(Optimizer& optimizer) {
  is_live = false;
  shards->adopt(optimizer, names);
  optimizer.state().clear();
  auto& groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i)
    for (::torch::Tensor& tensor : groups[i].params())
      if (const ParameterShard* shard = shards->of_shard(tensor)) tensor = shard->whole;
  for (ParameterShard& shard : shards->all()) shard.whole.mutable_grad().reset();
  storage.reset();
  whole_storage.reset();
}

ShardedReducer::ShardedReducer(ShardedReducer&&) noexcept = default;
ShardedReducer& ShardedReducer::operator=(ShardedReducer&&) noexcept = default;
ShardedReducer::~ShardedReducer() = default;

void ShardedReducer::refuse_archive(const char* call) {
  throw InvalidArgument(std::string(call) +
                        ": this rank has only its shards of a ShardedOptimizer's state. Call "
                        "full_state() on all ranks for the state of a plain optimizer, which "
                        "load_full_state() reads, or save(folder) and load(folder)");
}

void ShardedReducer::adopt(Optimizer& optimizer) {
  state_->shards->adopt(optimizer, state_->names);
}

void ShardedReducer::synchronize(Optimizer& optimizer) {
  adopt(optimizer);
  if (state_->whole_storage) state_->whole_storage->sync_with_module();
  state_->live().synchronize(state_->shards->whole_groups());
  if (state_->storage) {
    state_->storage->sync_with_module();
    state_->storage->take_replaced();
  } else {
    state_->share_gradients();
  }
}

void ShardedReducer::begin_step(Optimizer& optimizer) {
  synchronize(optimizer);
  state_->require_all_ranks();
}

void ShardedReducer::end_step() {
  state_->loaded = {};
  try {
    state_->gather_parameters(/*stepped=*/true);
  } catch (...) {
    // The ranks that skip the step have dropped their passes, too.
    state_->live().discard(state_->shards->whole_groups());
    throw;
  }
  state_->live().end_step();
}

void ShardedReducer::skip(Optimizer& optimizer) {
  state_->shards->adopt(optimizer, state_->names);
  state_->live().skip(state_->shards->whole_groups());
  state_->require_all_ranks();
  state_->gather_parameters(/*stepped=*/false);
}

void ShardedReducer::discard(Optimizer& optimizer) {
  state_->shards->adopt(optimizer, state_->names);
  state_->live().discard(state_->shards->whole_groups());
}

void ShardedReducer::begin_evaluations(Optimizer& optimizer) {
  adopt(optimizer);
  state_->live().begin_evaluations(state_->shards->whole_groups());
}

// The optimizer zeroes or removes the gradients of shards. So each shard gets a gradient here if
// the whole parameter has one.
void ShardedReducer::prepare_zero_grad(Optimizer& optimizer) {
  // The program may have reset gradients through its module.
  if (state_->storage) state_->storage->sync_with_module();
  if (state_->whole_storage) state_->whole_storage->sync_with_module();
  discard(optimizer);
  const at::NoGradGuard no_grad;
  for (ParameterShard& shard : state_->shards->all())
    if (shard.whole.grad().defined() && !shard.shard.grad().defined())
      shard.shard.mutable_grad() = at::zeros_like(shard.shard);
}

void ShardedReducer::finish_zero_grad() {
  if (state_->storage) return state_->storage->clear();
  const at::NoGradGuard no_grad;
  for (ParameterShard& shard : state_->shards->all()) {
    ::torch::Tensor& whole = shard.whole.mutable_grad();
    if (!shard.shard.grad().defined()) {
      whole.reset();
    } else if (whole.defined()) {
      whole.zero_();
    }
  }
}

NoSync ShardedReducer::no_sync() const { return state_->live().no_sync(); }

::torch::Tensor ShardedReducer::reduce_loss(const ::torch::Tensor& loss) {
  return state_->live().reduce_loss(loss);
}

const ProcessSet& ShardedReducer::process_set() const { return state_->options.process_set; }

bool ShardedReducer::all_ranks(bool condition) const {
  if (!state_->is_member) return condition;
  std::int32_t all = condition ? 1 : 0;
  allreduce(all, {.name = state_->operation("(agreement)"),
                  .op = ReduceOp::min,
                  .process_set = state_->options.process_set});
  return all != 0;
}

::torch::Tensor ShardedReducer::on_any_rank(::torch::Tensor own) const {
  if (own.is_cpu()) return at::scalar_tensor(all_ranks(own.item<float>() == 0.0F) ? 0.0F : 1.0F);
  if (state_->is_member)
    allreduce_(own, {.name = state_->operation("(not finite)"),
                     .op = ReduceOp::max,
                     .process_set = state_->options.process_set});
  return own;
}

::torch::Tensor ShardedReducer::clip(Optimizer& optimizer, double max_norm,
                                     const ClipOptions& options) {
  require_clip(max_norm, options.norm_type);
  synchronize(optimizer);
  const at::NoGradGuard no_grad;
  const std::vector<::torch::Tensor> gradients = gradient_elements(optimizer.param_groups());
  const ::torch::Tensor own =
      norm_of(gradients, options.norm_type, device_of(optimizer.param_groups()));
  const ::torch::Tensor norm =
      join_norms(own, options.norm_type, state_->operation("(norm)"), state_->options.process_set);
  scale_to(max_norm, norm, options.refuse_nonfinite, gradients);
  return norm;
}

}  // namespace kolo::detail
