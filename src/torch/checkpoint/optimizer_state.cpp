// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/checkpoint/optimizer_state.hpp"

#include <ATen/ops/empty_strided.h>

#include <concepts>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "kolo/error.hpp"
#include "torch/checkpoint/host_tensors.hpp"
#include "torch/checkpoint/shard_collector.hpp"
#include "torch/optimizer/optimizer_kinds.hpp"
#include "torch/optimizer/parameter_shards.hpp"
#include "torch/optimizer/shard_groups.hpp"
#include "torch/tensor_view.hpp"
#include "training/safetensors/strict_json.hpp"

namespace kolo::internal {
namespace {

using nlohmann::json;
using optim::Optimizer;

json json_of(double value) { return value; }
json json_of(bool value) { return value; }
json json_of(const std::tuple<double, double>& value) {
  return {std::get<0>(value), std::get<1>(value)};
}
void from_json_to(const json& text, double& value) { value = text.get<double>(); }
void from_json_to(const json& text, bool& value) { value = text.get<bool>(); }
void from_json_to(const json& text, std::tuple<double, double>& value) {
  value = {text.at(0).get<double>(), text.at(1).get<double>()};
}

void add_state(StateView& view, const std::string& name, std::int64_t value) {
  add_tensor(view, name, ::torch::scalar_tensor(value, ::torch::kInt64));
}
void add_state(StateView& view, const std::string& name, const ::torch::Tensor& value) {
  if (value.defined()) add_tensor(view, name, value);
}

using Stored = std::function<::torch::Tensor(const ::torch::Tensor&, const ::torch::Tensor&)>;

// Describes a tensor of the state that a safetensors file cannot hold; "" if there is none.
template <typename K>
std::string unstorable(K /*kind*/, const Optimizer& optimizer) {
  std::string found;
  std::size_t number = 0;
  for (const auto& group : optimizer.param_groups()) {
    for (const ::torch::Tensor& parameter : group.params()) {
      const std::string start = "state." + std::to_string(number++) + '.';
      const auto state = optimizer.state().find(key_of(optimizer.state(), parameter));
      if (state == optimizer.state().end()) continue;
      visit_each(dynamic_cast<const typename K::State&>(*state->second),
                 [&](const char* name, const auto& value) {
                   if constexpr (std::same_as<std::decay_t<decltype(value)>, ::torch::Tensor>) {
                     if (value.defined() && !is_storable(value) && found.empty())
                       found = "'" + start + name + "' is " + c10::toString(value.scalar_type());
                   }
                 });
    }
  }
  return found;
}

template <typename K>
StateView save_as(K kind, const Optimizer& optimizer, const Stored& stored) {
  StateView view;
  json groups = json::array();
  std::size_t number = 0;
  for (const auto& group : optimizer.param_groups()) {
    json options = json::object();
    visit_each(dynamic_cast<const typename K::Options&>(group.options()),
               [&](const char* name, const auto& value) { options[name] = json_of(value); });
    options["params"] = json::array();
    for (const ::torch::Tensor& parameter : group.params()) {
      const std::string start = "state." + std::to_string(number) + '.';
      options["params"].push_back(number++);
      const auto state = optimizer.state().find(key_of(optimizer.state(), parameter));
      if (state == optimizer.state().end()) continue;
      visit_each(dynamic_cast<const typename K::State&>(*state->second),
                 [&](const char* name, const auto& value) {
                   if constexpr (std::same_as<std::decay_t<decltype(value)>, ::torch::Tensor>) {
                     if (stored && value.defined())
                       return add_state(view, start + name, stored(parameter, value));
                   }
                   add_state(view, start + name, value);
                 });
    }
    groups.push_back(std::move(options));
  }
  view.metadata = {{"class", kind.name}, {"param_groups", groups.dump()}};
  if (stored) return view;
  if (const auto* sharded = dynamic_cast<const detail::ShardedBase*>(&optimizer)) {
    view.metadata.emplace(shard_place_entry, sharded->place());
    view.metadata.emplace(shard_parameters_entry, sharded->describe_parameters());
  } else if (const auto group = shard_group_of(optimizer.param_groups())) {
    const auto find = [&](const ::torch::Tensor& shard) { return group->of_shard(shard); };
    if (!group->saves) return {};
    view.metadata.emplace(shard_place_entry, shard_place_text(group->position));
    view.metadata.emplace(shard_parameters_entry, describe(shards_by_number(optimizer, find)));
  }
  return view;
}

[[noreturn]] void refuse_state(const std::string& why) {
  throw InvalidArgument("this state cannot be loaded as this optimizer's: " + why);
}

// Loads a state into an optimizer. `read` checks everything, and nothing changes before `apply`.
template <typename K>
class Loader {
 public:
  Loader(const StateView& saved, Optimizer& optimizer, const ShardFinder& shards)
      : saved_(saved), optimizer_(optimizer), shards_(shards) {}

  void read(const json& groups) {
    auto& here = optimizer_.param_groups();
    if (!groups.is_array() || groups.size() != here.size())
      refuse_state("it is of " + std::to_string(groups.size()) + " groups of parameters, not of " +
                   std::to_string(here.size()));
    std::size_t number = 0;
    for (std::size_t i = 0; i < here.size(); ++i) {
      const std::size_t parameters = groups.at(i).at("params").size();
      if (parameters != here[i].params().size())
        refuse_state("group " + std::to_string(i) + " has " + std::to_string(parameters) +
                     " parameters in it and " + std::to_string(here[i].params().size()) + " here");
      auto& options = options_.emplace_back(
          dynamic_cast<const typename K::Options&>(std::as_const(here[i]).options()));
      visit_each(options, [&](const char* name, auto& value) {
        from_json_to(groups.at(i).at(name), value);
      });
      for (const ::torch::Tensor& parameter : here[i].params())
        read_state(number++, parameter, options);
    }
    if (used_ != saved_.tensors.size()) refuse_state("it has tensors that belong to no parameter");
  }

  void apply() {
    auto& groups = optimizer_.param_groups();
    for (std::size_t i = 0; i < groups.size(); ++i)
      dynamic_cast<typename K::Options&>(groups[i].options()) = options_[i];
    // The state of parameters that the saved state lacks must not survive.
    optimizer_.state().clear();
    for (auto& [parameter, state] : states_)
      optimizer_.state()[key_of(optimizer_.state(), parameter)] = std::move(state);
  }

 private:
  void read_state(std::size_t number, const ::torch::Tensor& parameter,
                  const typename K::Options& options) {
    const std::string start = "state." + std::to_string(number) + '.';
    auto state = std::make_unique<typename K::State>();
    const std::size_t before = used_;
    std::string missing;
    visit_each(*state, [&](const char* name, auto& value) {
      const auto found = saved_.tensors.find(start + name);
      if (found == saved_.tensors.end()) {
        if (missing.empty() && needs_state(options, name)) missing = start + name;
        return;
      }
      ++used_;
      set(value, tensor_of(found->second, found->first), parameter, found->first);
    });
    if (used_ == before) return;
    if (!missing.empty()) refuse_state("it lacks '" + missing + "'");
    states_.emplace_back(parameter, std::move(state));
  }

  void set(std::int64_t& value, const ::torch::Tensor& found, const ::torch::Tensor&,
           const std::string& name) const {
    if (found.numel() != 1) refuse_state("'" + name + "' is not one number");
    value = found.to(::torch::kInt64).template item<std::int64_t>();
  }

  void set(::torch::Tensor& value, const ::torch::Tensor& found, const ::torch::Tensor& parameter,
           const std::string& name) const {
    const ParameterShard* shard = shards_ ? shards_(parameter) : nullptr;
    const ::torch::Tensor& like = shard == nullptr ? parameter : shard->whole;
    if (found.sizes() != like.sizes())
      refuse_state("'" + name + "' is " + describe(found) + ", its parameter " + describe(like));
    // The copy has the parameter's order in memory, like the tensors that the optimizer makes.
    value = at::empty_strided(like.sizes(), like.strides(),
                              parameter.options().dtype(found.dtype()).requires_grad(false));
    value.copy_(found);
    if (shard != nullptr) value = shard->shard_of(value).clone();
  }

  const StateView& saved_;
  Optimizer& optimizer_;
  const ShardFinder& shards_;
  std::vector<typename K::Options> options_{};
  std::vector<std::pair<::torch::Tensor, std::unique_ptr<typename K::State>>> states_{};
  std::size_t used_ = 0;
};

template <typename K>
void load_as(K kind, const StateView& saved, Optimizer& optimizer, const ShardFinder& shards) {
  const auto found = saved.metadata.find("class");
  if (found == saved.metadata.end() || found->second != kind.name)
    refuse_state("it is of the class '" + (found == saved.metadata.end() ? "" : found->second) +
                 "', not of " + kind.name);
  const auto place = saved.metadata.find(shard_place_entry);
  const std::string there = place == saved.metadata.end() ? "" : place->second;
  auto* const sharded = dynamic_cast<detail::ShardedBase*>(&optimizer);
  if (sharded != nullptr) sharded->adopt_parameters();
  std::string here;
  if (sharded != nullptr && !shards) here = sharded->place();
  if (sharded == nullptr && !shards)
    if (const auto group = shard_group_of(optimizer.param_groups()))
      here = shard_place_text(group->position);
  require_same_place(there, here);
  const at::NoGradGuard no_grad;
  Loader<K> loader(saved, optimizer, shards);
  try {
    loader.read(parse_strict_json(saved.metadata.at("param_groups")));
  } catch (const JsonFault& fault) {
    refuse_state(std::string("param_groups ") + fault.what());
  } catch (const json::exception& error) {
    refuse_state(std::string("param_groups: ") + error.what());
  } catch (const std::out_of_range&) {
    refuse_state("it has no param_groups");
  }
  loader.apply();
}

}  // namespace

void require_same_place(const std::string& there, const std::string& here) {
  if (there == here) return;
  refuse_state(
      "it has " + (there.empty() ? "the full state" : "shard " + there) + ", not " +
      (here.empty() ? "the full state" : "shard " + here) +
      ". Load it with load_full_state() or load_sharded_state() of the ShardedOptimizer or "
      "FullySharded");
}

std::string obstacle_to_saving(const Optimizer& optimizer) {
  std::string found;
  if (!with_kind(optimizer, [&](auto kind) { found = unstorable(kind, optimizer); }))
    return "its class is none of SGD, Adam, AdamW, RMSprop and Adagrad";
  return found.empty() ? "" : found + ", which a safetensors file cannot hold";
}

std::optional<StateView> save_optimizer(const Optimizer& optimizer, const Stored& stored) {
  if (!obstacle_to_saving(optimizer).empty()) return std::nullopt;
  StateView saved;
  with_kind(optimizer, [&](auto kind) { saved = save_as(kind, optimizer, stored); });
  return saved;
}

bool is_archive(const StateView& state) {
  const auto found = state.tensors.find("");
  if (found == state.tensors.end() || found->second.bytes() < 2) return false;
  std::string start(2, ' ');
  found->second.read(0, start);
  return start == "PK";
}

void load_optimizer(const StateView& state, Optimizer& optimizer, const ShardFinder& shards) {
  if (is_archive(state)) refuse_state("it is an archive of LibTorch's own");
  if (!with_kind(optimizer, [&](auto kind) { load_as(kind, state, optimizer, shards); }))
    refuse_state("it is not a LibTorch archive");
}

}  // namespace kolo::internal
