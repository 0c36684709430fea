// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/checkpoint/shard_collector.hpp"

#include <ATen/ops/zeros.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "kolo/error.hpp"
#include "torch/checkpoint/host_tensors.hpp"
#include "torch/tensor_view.hpp"
#include "training/optimizer/shard_gather.hpp"
#include "training/safetensors/strict_json.hpp"

namespace kolo::internal {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& why) {
  throw InvalidArgument("this state of shards " + why);
}

/// Collects this rank's shards from those that any number of ranks have saved.
class Collector {
 public:
  using Parameters = std::vector<const ParameterShard*>;
  /// Finds the parameter to which a tensor of the state belongs; null if there is none.
  using Find = std::function<const ParameterShard*(const std::string&)>;

  Collector(const Parameters& parameters, Find find)
      : parameters_(describe(parameters)), find_(std::move(find)) {}

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
    std::string there = "unknown";
    try {
      const json parsed = parse_strict_json(text);
      if (parsed == parse_strict_json(parameters_)) return;
      there = parsed.dump();
    } catch (const JsonFault&) {  // the message says that they are unknown
    }
    refuse("is that of other parameters: they are " + there + " in it and " + parameters_ +
           " here");
  }

  const ParameterShard& parameter_of(const std::string& name) const {
    const ParameterShard* const found = find_(name);
    if (found == nullptr) refuse("has the tensor '" + name + "', which belongs to no parameter");
    return *found;
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

  std::string parameters_;
  Find find_;
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

StateView collect(const std::vector<StateView>& saved, Collector collector,
                  const std::string& place) {
  const at::NoGradGuard no_grad;
  const std::vector<const StateView*> shards = in_order(saved);
  for (std::size_t i = 0; i < shards.size(); ++i)
    collector.take(*shards[i],
                   {.index = static_cast<int>(i), .ranks = static_cast<int>(shards.size())});
  return collector.state(place);
}

}  // namespace

std::vector<const ParameterShard*> shards_by_number(const ::torch::optim::Optimizer& optimizer,
                                                    const ShardFinder& find) {
  std::vector<const ParameterShard*> all;
  for (const auto& group : optimizer.param_groups())
    for (const ::torch::Tensor& shard : group.params()) all.push_back(find(shard));
  return all;
}

std::string describe(const std::vector<const ParameterShard*>& parameters) {
  json all = json::array();
  for (const ParameterShard* shard : parameters)
    all.push_back(shard == nullptr ? std::string() : describe(shard->whole));
  return all.dump();
}

StateView collect_optimizer_shards(const std::vector<StateView>& saved,
                                   const std::vector<const ParameterShard*>& parameters,
                                   const std::string& place) {
  const auto find = [&](std::string_view name) -> const ParameterShard* {
    constexpr std::string_view start = "state.";
    if (!name.starts_with(start)) return nullptr;
    name.remove_prefix(start.size());
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    return error == std::errc() && number < parameters.size() ? parameters[number] : nullptr;
  };
  return collect(saved, Collector(parameters, find), place);
}

StateView collect_model_shards(const std::vector<StateView>& saved,
                               const std::vector<const ParameterShard*>& parameters,
                               const std::vector<std::string>& names, const std::string& place) {
  const auto find = [&](const std::string& name) -> const ParameterShard* {
    const auto found = std::ranges::find(names, name);
    return found == names.end() ? nullptr
                                : parameters[static_cast<std::size_t>(found - names.begin())];
  };
  return collect(saved, Collector(parameters, find), place);
}

}  // namespace kolo::internal
