// SPDX-License-Identifier: Apache-2.0
// The state of a ShardedOptimizer: in full, and as shards that each rank saves as a part of its
// own.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
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
#include "torch/optimizer/sharded_reducer_state.hpp"
#include "torch/tensor_view.hpp"
#include "training/agreement.hpp"
#include "training/optimizer/shard_gather.hpp"
#include "training/safetensors/strict_json.hpp"

namespace kolo::detail {

using namespace internal;
namespace {

using nlohmann::json;

// The parameters with their shards, in the order in which the saved state numbers them.
std::vector<const ParameterShard*> numbered(const ::torch::optim::Optimizer& optimizer,
                                            const ParameterShards& shards) {
  std::vector<const ParameterShard*> all;
  for (const auto& group : optimizer.param_groups())
    for (const ::torch::Tensor& shard : group.params()) all.push_back(shards.of_shard(shard));
  return all;
}

json descriptions(const std::vector<const ParameterShard*>& parameters) {
  json all = json::array();
  for (const ParameterShard* shard : parameters)
    all.push_back(shard == nullptr ? std::string() : describe(shard->whole));
  return all;
}

[[noreturn]] void refuse(const std::string& why) {
  throw InvalidArgument("this state of shards " + why);
}

/// Collects this rank's shards from those that any number of ranks have saved.
class Collector {
 public:
  explicit Collector(std::vector<const ParameterShard*> parameters)
      : parameters_(std::move(parameters)) {}

  /// Reads what this rank needs of the shards at this position.
  void take(const StateView& saved, ShardPosition position) {
    if (position.index == 0) {
      require_same_parameters(text_in(saved, shard_parameters_entry));
      for (const char* name : {"class", "param_groups"}) metadata_[name] = text_in(saved, name);
    }
    for (const auto& [name, source] : saved.tensors) {
      if (source.shape.dimensions() > 0)
        copy_shard(name, source, position);
      else if (!tensors_.contains(name))
        tensors_.emplace(name, tensor_of(source, name));
    }
  }

  [[nodiscard]] StateView state(const std::string& place) const {
    StateView view;
    for (const auto& [name, tensor] : tensors_) {
      if (tensor.dim() == 1 && covered_.at(name) != tensor.numel())
        refuse("lacks elements of the tensor '" + name + "'");
      add_tensor(view, name, tensor);
    }
    view.metadata = metadata_;
    view.metadata[shard_place_entry] = place;
    return view;
  }

  static std::string text_in(const StateView& saved, const char* name) {
    const auto found = saved.metadata.find(name);
    return found == saved.metadata.end() ? std::string() : found->second;
  }

 private:
  void require_same_parameters(const std::string& text) const {
    const json here = descriptions(parameters_);
    std::string there = "unknown";
    try {
      const json parsed = parse_strict_json(text);
      if (parsed == here) return;
      there = parsed.dump();
    } catch (const JsonFault&) {  // the message says that they are unknown
    }
    refuse("is that of other parameters: they are " + there + " in it and " + here.dump() +
           " here");
  }

  // Finds the parameter by the number in the tensor's name, "state.<number>.<name>".
  const ParameterShard& parameter_of(const std::string& name) const {
    constexpr std::string_view start = "state.";
    std::size_t number = 0;
    std::size_t digits = 0;
    if (name.starts_with(start))
      for (std::size_t i = start.size(); i < name.size() && name[i] >= '0' && name[i] <= '9';
           ++i, ++digits)
        number = number * 10 + static_cast<std::size_t>(name[i] - '0');
    if (digits == 0 || digits > 9 || number >= parameters_.size() || parameters_[number] == nullptr)
      refuse("has the tensor '" + name + "', which belongs to no parameter");
    return *parameters_[number];
  }

  void copy_shard(const std::string& name, const TensorSource& from, ShardPosition position) {
    const ParameterShard& shard = parameter_of(name);
    if (from.shape.dimensions() != 1 || from.shape.elements() != position.size(shard.elements))
      refuse("has a tensor '" + name + "' of " + std::to_string(from.shape.elements()) +
             " elements");
    const auto dtype = torch_dtype(from.dtype);
    if (!dtype) refuse("has a tensor '" + name + "' of a dtype that LibTorch lacks");
    const auto [into, is_new] = tensors_.try_emplace(name);
    if (is_new) into->second = at::zeros({shard.size}, at::TensorOptions().dtype(*dtype));
    std::int64_t& covered = covered_[name];
    if (into->second.scalar_type() != *dtype)
      refuse("has a tensor '" + name + "' of different dtypes");
    // The elements that both have.
    const std::int64_t begin = position.begin(shard.elements);
    const std::int64_t first = std::max(begin, shard.begin);
    const std::int64_t last = std::min(position.end(shard.elements), shard.begin + shard.size);
    if (last <= first) return;
    covered += last - first;
    const auto element_bytes = static_cast<std::size_t>(into->second.element_size());
    const auto bytes_of = [&](std::int64_t elements) {
      return static_cast<std::size_t>(elements) * element_bytes;
    };
    char* const to = static_cast<char*>(into->second.data_ptr()) + bytes_of(first - shard.begin);
    from.read(bytes_of(first - begin), {to, bytes_of(last - first)});
  }

  std::vector<const ParameterShard*> parameters_;
  std::map<std::string, ::torch::Tensor> tensors_{};
  std::map<std::string, std::int64_t> covered_{};  // number of elements found, by tensor
  Metadata metadata_{};
};

// Puts shards into the order of their positions. Ranks outside the optimizer's set have none.
std::vector<const StateView*> in_order(const std::vector<StateView>& saved) {
  std::map<std::string, const StateView*> by_place;
  for (const StateView& one : saved)
    if (const std::string place = Collector::text_in(one, shard_place_entry);
        !place.empty() && !by_place.emplace(place, &one).second)
      refuse("has shard " + place +
             " twice: optimizers of different process sets need parts of different names");
  if (by_place.empty()) refuse("has no shards");
  const std::string& any = by_place.begin()->first;
  const auto ranks = static_cast<int>(by_place.size());
  std::vector<const StateView*> ordered;
  for (int index = 0; index < ranks; ++index) {
    const auto found = by_place.find(shard_place_text({.index = index, .ranks = ranks}));
    if (found == by_place.end())
      refuse("is not complete: it has " + std::to_string(ranks) + " shards, among them shard " +
             any);
    ordered.push_back(found->second);
  }
  return ordered;
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
    load_optimizer(state_->loaded, optimizer, state_->shards.get());
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
  load_optimizer(state, optimizer, state_->shards.get());
  if (agreements_are_deferred()) state_->loaded = state.copy();
}

void ShardedReducer::load_sharded_state(const std::vector<StateView>& saved, Optimizer& optimizer) {
  const auto read = [&] {
    state_->shards->adopt(optimizer, state_->names);
    const at::NoGradGuard no_grad;
    const std::vector<const StateView*> shards = in_order(saved);
    Collector collector(numbered(optimizer, *state_->shards));
    for (std::size_t i = 0; i < shards.size(); ++i)
      collector.take(*shards[i],
                     {.index = static_cast<int>(i), .ranks = static_cast<int>(shards.size())});
    load_optimizer(collector.state(place()), optimizer);
  };
  const std::string subject = "ShardedOptimizer::load_sharded_state: ";
  if (state_->is_member)
    return share_failure("kolo.sharded_load", subject, read, state_->options.process_set);
  if (const std::string failure = failure_of(read); !failure.empty())
    throw Error(subject + failure);
}

std::string ShardedReducer::describe_parameters(const Optimizer& optimizer) const {
  return descriptions(numbered(optimizer, *state_->shards)).dump();
}

}  // namespace kolo::detail
