// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <cstddef>
#include <random>
#include <utility>

#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "kolo/torch/checkpoint.hpp"
#include "kolo/torch/sharded_optimizer.hpp"
#include "torch/gpu_stream.hpp"
#include "torch/optimizer_gradients.hpp"
#include "torch/optimizer_state.hpp"
#include "torch/shard_files.hpp"
#include "torch/shard_source.hpp"
#include "torch/tensor_view.hpp"
#include "torch/whole_source.hpp"
#include "training/agreement.hpp"
#include "training/parts_gather.hpp"
#include "training/shard_index.hpp"

namespace kolo::detail {

using namespace internal;
namespace {

void add_to(PartsGather& gather, const ::torch::Tensor& part, const ::torch::Tensor& whole) {
  gather.add(view_of(part), view_of(elements_in_memory(whole)),
             [whole, memory = ::torch::Tensor()]() mutable {
               memory = at::empty_like(whole);
               return memory.data_ptr();
             });
}

std::string unlikely_key() {
  std::random_device random;
  return std::to_string(random()) + '-' + std::to_string(random());
}

}  // namespace

struct ShardedReducer::State {
  DistributedOptimizerOptions options;
  Sharding sharding;
  std::optional<NamedParameters> given_names;
  int index = 0;  // of this rank's parts, among `parts`
  int parts = 1;
  std::string loaded;  // a whole state, until the first step
  bool is_member;
  ParameterNames names;
  std::shared_ptr<ParameterShards> shards;
  std::shared_ptr<ShardSource> source;        // null if gradients stay whole
  std::shared_ptr<WholeSource> whole_source;  // else null
  std::optional<GradientReducer> reducer;

  [[nodiscard]] std::string operation(const char* name) const {
    return std::to_string(reducer->number()) + name;
  }

  void divide(Optimizer& optimizer);
  void reunite(Optimizer& optimizer);
  void require_all_ranks() const;
  void share_gradients();
  void gather_parameters(bool stepped);
};

void ShardedReducer::State::require_all_ranks() const {
  if (!source && is_member)
    internal::require_all_ranks(operation("(backward)"), options.process_set);
}

// The parts of whole gradients, in their memory.
void ShardedReducer::State::share_gradients() {
  const at::NoGradGuard no_grad;
  for (ParameterShard& shard : shards->all()) {
    ::torch::Tensor gradient = shard.whole.grad();
    if (!gradient.defined()) {
      shard.part.mutable_grad().reset();
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
    }
    shard.part.mutable_grad() = own_tensor(shard.part_of(gradient));
    shard.shares_gradient = true;
  }
}

// A rank that skips gathers nothing under the same name, so that one that steps gets Mismatch.
void ShardedReducer::State::gather_parameters(bool stepped) {
  if (!is_member) return;
  const at::NoGradGuard no_grad;
  PartsGather gather(options.process_set);
  ParameterShard* first = nullptr;
  for (ParameterShard& shard : shards->all()) {
    if (!shard.is_stepped()) continue;
    if (first == nullptr) first = &shard;
    if (stepped) add_to(gather, shard.part, shard.whole);
  }
  if (first == nullptr) return;
  // The name of the operation that ends each pass: a rank that goes on without a step gets
  // Mismatch.
  const std::string name = operation("(backward)");
  const StreamOf stream(first->whole);
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
  state.options.sparse_as_dense = true;
  state.is_member = state.options.process_set.rank() >= 0;
  if (names) {
    state.names = ParameterNames(*names, sharded_subject);
    state.names.require_all(optimizer.param_groups(), sharded_subject);
  }
  state.divide(optimizer);
}

/// Collective. Replaces the parameters in the optimizer's groups by this rank's parts of them.
void ShardedReducer::State::divide(Optimizer& optimizer) {
  const ProcessSet& set = options.process_set;
  index = is_member ? set.rank() : 0;
  parts = is_member ? set.size() : 1;
  shards = std::make_shared<ParameterShards>(index, parts);
  shards->adopt(optimizer, names);
  std::shared_ptr<TorchSource> made;
  if (sharding == Sharding::state) {
    made = whole_source = std::make_shared<WholeSource>(options, shards);
  } else {
    made = source = std::make_shared<ShardSource>(options, shards);
  }
  reducer.emplace(shards->whole_groups(), given_names, options, /*watches_steps=*/true,
                  std::move(made));
}

/// Puts the parameters back, without gradients and state.
void ShardedReducer::State::reunite(Optimizer& optimizer) {
  shards->adopt(optimizer, names);
  reducer.reset();
  optimizer.state().clear();
  auto& groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i)
    for (::torch::Tensor& tensor : groups[i].params())
      if (const ParameterShard* shard = shards->of_part(tensor)) tensor = shard->whole;
  for (ParameterShard& shard : shards->all()) shard.whole.mutable_grad().reset();
  source.reset();
  whole_source.reset();
}

void ShardedReducer::rejoin(Optimizer& optimizer) {
  require_world_to_rejoin(state_->options.process_set, sharded_subject);
  const ProcessSet& set = state_->options.process_set;
  // State that was loaded before the first commit.
  const bool has_same_parts = state_->index == set.rank() && state_->parts == set.size();
  const std::string kept =
      has_same_parts && !optimizer.state().empty() ? to_bytes(optimizer) : std::string();
  state_->reunite(optimizer);
  state_->divide(optimizer);
  if (!kept.empty()) {
    from_bytes(kept, optimizer);
  } else if (!state_->loaded.empty()) {
    load_optimizer(state_->loaded, optimizer, state_->shards.get());
  }
}

ShardedReducer::ShardedReducer(ShardedReducer&&) noexcept = default;
ShardedReducer& ShardedReducer::operator=(ShardedReducer&&) noexcept = default;
ShardedReducer::~ShardedReducer() = default;

void ShardedReducer::adopt(Optimizer& optimizer) {
  state_->shards->adopt(optimizer, state_->names);
}

void ShardedReducer::synchronize(Optimizer& optimizer) {
  adopt(optimizer);
  if (state_->whole_source) state_->whole_source->follow_program();
  state_->reducer->synchronize(state_->shards->whole_groups());
  if (state_->source) {
    state_->source->follow_program();
    state_->source->take_replaced();
  } else {
    state_->share_gradients();
  }
}

void ShardedReducer::begin_step(Optimizer& optimizer) {
  synchronize(optimizer);
  state_->require_all_ranks();
}

void ShardedReducer::end_step() {
  state_->loaded.clear();
  try {
    state_->gather_parameters(/*stepped=*/true);
  } catch (...) {
    // The ranks that skip have dropped their passes, too.
    state_->reducer->discard(state_->shards->whole_groups());
    throw;
  }
  state_->reducer->end_step();
}

void ShardedReducer::skip(Optimizer& optimizer) {
  state_->shards->adopt(optimizer, state_->names);
  state_->reducer->skip(state_->shards->whole_groups());
  state_->require_all_ranks();
  state_->gather_parameters(/*stepped=*/false);
}

void ShardedReducer::discard(Optimizer& optimizer) {
  state_->shards->adopt(optimizer, state_->names);
  state_->reducer->discard(state_->shards->whole_groups());
}

// The optimizer zeroes the gradients that it knows: of these, it decides whether they are undefined
// then. A part has one if the whole parameter has.
void ShardedReducer::prepare_zero_grad(Optimizer& optimizer) {
  discard(optimizer);
  const at::NoGradGuard no_grad;
  for (ParameterShard& shard : state_->shards->all())
    if (shard.whole.grad().defined() && !shard.part.grad().defined())
      shard.part.mutable_grad() = at::zeros_like(shard.part);
}

void ShardedReducer::finish_zero_grad() {
  if (state_->source) return state_->source->clear();
  const at::NoGradGuard no_grad;
  for (ParameterShard& shard : state_->shards->all()) {
    ::torch::Tensor& whole = shard.whole.mutable_grad();
    if (!shard.part.grad().defined()) {
      whole.reset();
    } else if (whole.defined()) {
      whole.zero_();
    }
  }
}

NoSync ShardedReducer::no_sync() const { return state_->reducer->no_sync(); }

::torch::Tensor ShardedReducer::reduce_loss(const ::torch::Tensor& loss) {
  return state_->reducer->reduce_loss(loss);
}

const ProcessSet& ShardedReducer::process_set() const { return state_->reducer->process_set(); }

std::string ShardedReducer::place() const {
  const ProcessSet& set = state_->options.process_set;
  return state_->is_member ? shard_place_text(set.rank(), set.size()) : shard_place_text(0, 1);
}

bool ShardedReducer::all_ranks(bool condition) const {
  if (!state_->is_member) return condition;
  std::int32_t all = condition ? 1 : 0;
  allreduce(all, {.name = state_->operation("(agreement)"),
                  .op = ReduceOp::min,
                  .process_set = state_->options.process_set});
  return all != 0;
}

double ShardedReducer::clip_grad_norm(Optimizer& optimizer, double max_norm,
                                      const ClipOptions& options) {
  require_clip(max_norm, options.norm_type);
  synchronize(optimizer);
  const at::NoGradGuard no_grad;
  const std::vector<::torch::Tensor> gradients = gradient_elements(optimizer.param_groups());
  double norm = norm_of(gradients, options.norm_type);
  if (state_->is_member) {
    const bool is_maximum = std::isinf(options.norm_type);
    if (!is_maximum) norm = std::pow(norm, options.norm_type);
    allreduce(norm, {.name = state_->operation("(norm)"),
                     .op = is_maximum ? ReduceOp::max : ReduceOp::sum,
                     .process_set = state_->options.process_set});
    if (!is_maximum) norm = std::pow(norm, 1.0 / options.norm_type);
  }
  scale_to(max_norm, norm, options.refuse_nonfinite, gradients);
  return norm;
}

std::string ShardedReducer::whole_state(const Optimizer& optimizer, int root) const {
  const ProcessSet& set = state_->options.process_set;
  if (root != all_ranks_get_it) require_root("whole_state", root, set);
  if (!state_->is_member) return {};
  if (const std::string why = obstacle_to_saving(optimizer); !why.empty())
    throw InvalidArgument("whole_state: the optimizer's state cannot be saved: " + why);
  const bool gets_it = root == all_ranks_get_it || rank() == root;
  const at::NoGradGuard no_grad;
  const auto whole_of = [&](const ::torch::Tensor& part, const ::torch::Tensor& value) {
    const ParameterShard* shard = state_->shards->of_part(part);
    if (shard == nullptr) return ::torch::Tensor();  // added, and without a step since
    ::torch::Tensor whole = at::empty_like(shard->whole, value.options());
    const StreamOf stream(whole);
    PartsGather gather(set);
    add_to(gather, value, whole);
    gather.run(state_->operation("(state)"));
    return gets_it ? whole : ::torch::Tensor();
  };
  const std::optional<std::string> bytes = save_optimizer(optimizer, whole_of);
  return gets_it ? bytes.value() : std::string();
}

void ShardedReducer::load_whole_state(const std::string& bytes, Optimizer& optimizer) {
  state_->shards->adopt(optimizer, state_->names);
  load_optimizer(bytes, optimizer, state_->shards.get());
  if (agreements_are_deferred()) state_->loaded = bytes;
}

void ShardedReducer::save_state(const std::filesystem::path& folder, Optimizer& optimizer) {
  if (!state_->is_member) return;
  const ProcessSet& set = state_->options.process_set;
  const int first = set.ranks().front();
  std::string key;
  std::string error;
  if (rank() == first) {
    error = failure_of([&] {
      key = unlikely_key();
      std::filesystem::create_directories(folder);
      std::filesystem::remove(folder / shard_index_name);
    });
  }
  require_success("save_state", "make the folder", error, set);
  broadcast(key, first, {.name = state_->operation("(save)"), .process_set = set});
  error = failure_of([&] {
    state_->shards->adopt(optimizer, state_->names);
    write_shard(folder, key, {.index = set.rank(), .ranks = set.size()}, optimizer,
                *state_->shards);
  });
  require_success("save_state", "write", error, set);
  error = {};
  if (rank() == first)
    error = failure_of([&] { write_shard_index(folder, {.key = key, .ranks = set.size()}); });
  require_success("save_state", "write the index", error, set);
}

void ShardedReducer::load_state(const std::filesystem::path& folder, Optimizer& optimizer) {
  const std::string error = failure_of([&] {
    state_->shards->adopt(optimizer, state_->names);
    read_shards(folder, optimizer, *state_->shards, place());
  });
  if (!state_->is_member) {
    if (!error.empty()) throw Error("load_state: " + error);
    return;
  }
  require_success("load_state", "read", error, state_->options.process_set);
}

}  // namespace kolo::detail
