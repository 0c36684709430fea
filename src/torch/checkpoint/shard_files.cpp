// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/checkpoint/shard_files.hpp"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "kolo/error.hpp"
#include "torch/checkpoint/host_tensors.hpp"
#include "torch/checkpoint/optimizer_state.hpp"
#include "torch/tensor_view.hpp"
#include "training/checkpoint/index_files.hpp"
#include "training/checkpoint/safetensors_header.hpp"
#include "training/optimizer/shard_gather.hpp"

namespace kolo::internal {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* key_entry = "kolo.shards.key";
constexpr const char* parameters_entry = "kolo.shards.parameters";

fs::path file_name(const fs::path& folder, ShardPosition position) {
  const auto number = [](int value) {
    const std::string text = std::to_string(value);
    return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
  };
  return folder /
         ("state-" + number(position.index + 1) + "-of-" + number(position.ranks) + ".safetensors");
}

// The parameters with their shards, in the order in which the saved state numbers them.
std::vector<const ParameterShard*> numbered(const ::torch::optim::Optimizer& optimizer,
                                            const ParameterShards& shards) {
  std::vector<const ParameterShard*> all;
  for (const auto& group : optimizer.param_groups())
    for (const ::torch::Tensor& part : group.params()) all.push_back(shards.of_shard(part));
  return all;
}

json descriptions(const std::vector<const ParameterShard*>& parameters) {
  json all = json::array();
  for (const ParameterShard* shard : parameters)
    all.push_back(shard == nullptr ? std::string() : describe(shard->whole));
  return all;
}

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw CheckpointError(CheckpointFault::corrupt, path,
                        "the state's file '" + path.string() + "' " + why);
}

/// Collects this rank's parts of the state from the files of all ranks, one file after another.
class Collector {
 public:
  explicit Collector(std::vector<const ParameterShard*> parameters)
      : parameters_(std::move(parameters)) {}

  /// True for a file with elements of this rank's shards, and for the first file, whose metadata
  /// every rank needs.
  [[nodiscard]] bool needs(ShardPosition position) const {
    return position.index == 0 ||
           std::any_of(parameters_.begin(), parameters_.end(), [&](const ParameterShard* shard) {
             return shard != nullptr && common(*shard, position).size > 0;
           });
  }

  void take(const fs::path& path, ShardPosition position, const std::string& key) {
    const StateDict file = load_safetensors(path);
    const auto text = [&](const char* name) {
      const auto found = file.metadata.find(name);
      return found == file.metadata.end() ? std::string() : found->second;
    };
    if (text(key_entry) != key) refuse(path, "belongs to another state than the index");
    if (position.index == 0) {
      require_same_parameters(text(parameters_entry));
      for (const char* name : {"class", "param_groups"}) metadata_.emplace(name, text(name));
    }
    for (const auto& [name, stored] : file.tensors) {
      const ::torch::Tensor tensor = tensor_of(stored, name);
      if (tensor.dim() == 0) {
        tensors_.try_emplace(name, tensor);
      } else {
        copy_part(path, name, tensor, position);
      }
    }
  }

  [[nodiscard]] StateDict state(const fs::path& folder, const std::string& place) const {
    HostTensors host;
    for (const auto& [name, tensor] : tensors_) {
      if (tensor.dim() == 1 && covered_.at(name) != tensor.numel())
        refuse(folder, "lacks elements of the tensor '" + name + "'");
      host.add(name, tensor);
    }
    Metadata metadata = metadata_;
    metadata[shard_place_entry] = place;
    return StateDict(host.views(), std::move(metadata));
  }

 private:
  /// The elements that this rank's shard has in common with the shard in a file.
  struct Common {
    std::int64_t here;   // the beginning in this rank's shard
    std::int64_t there;  // the beginning in the file's shard
    std::int64_t size;
  };

  static Common common(const ParameterShard& shard, ShardPosition position) {
    const std::int64_t begin = position.begin(shard.elements);
    const std::int64_t end = position.end(shard.elements);
    const std::int64_t first = std::max(begin, shard.begin);
    const std::int64_t last = std::min(end, shard.begin + shard.size);
    return {first - shard.begin, first - begin, std::max<std::int64_t>(last - first, 0)};
  }

  void require_same_parameters(const std::string& text) const {
    const json here = descriptions(parameters_);
    const json there = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (there == here) return;
    throw InvalidArgument("this state is that of other parameters: they are " +
                          (there.is_discarded() ? "unknown" : there.dump()) + " in the files and " +
                          here.dump() + " here");
  }

  // Finds the parameter by the number in the tensor's name, "state.<number>.<name>".
  const ParameterShard& parameter_of(const fs::path& path, const std::string& name) const {
    constexpr std::string_view start = "state.";
    std::size_t number = 0;
    std::size_t digits = 0;
    if (name.starts_with(start))
      for (std::size_t i = start.size(); i < name.size() && name[i] >= '0' && name[i] <= '9';
           ++i, ++digits)
        number = number * 10 + static_cast<std::size_t>(name[i] - '0');
    if (digits == 0 || digits > 9 || number >= parameters_.size() || parameters_[number] == nullptr)
      refuse(path, "has the tensor '" + name + "', which belongs to no parameter");
    return *parameters_[number];
  }

  void copy_part(const fs::path& path, const std::string& name, const ::torch::Tensor& from,
                 ShardPosition position) {
    const ParameterShard& shard = parameter_of(path, name);
    if (from.dim() != 1 || from.numel() != position.size(shard.elements))
      refuse(path, "has a tensor '" + name + "' of " + std::to_string(from.numel()) + " elements");
    const auto [into, is_new] = tensors_.try_emplace(name);
    if (is_new) into->second = at::zeros({shard.size}, from.options());
    if (into->second.scalar_type() != from.scalar_type())
      refuse(path, "has a tensor '" + name + "' of another dtype than the other files");
    const Common both = common(shard, position);
    covered_[name] += both.size;
    if (both.size > 0)
      into->second.narrow(0, both.here, both.size).copy_(from.narrow(0, both.there, both.size));
  }

  std::vector<const ParameterShard*> parameters_;
  std::map<std::string, ::torch::Tensor> tensors_{};
  std::map<std::string, std::int64_t> covered_{};  // number of elements found, by tensor
  Metadata metadata_{};
};

}  // namespace

void write_shard(const fs::path& folder, const std::string& key, ShardPosition position,
                 const ::torch::optim::Optimizer& optimizer, const ParameterShards& shards) {
  std::optional<StateDict> saved = save_optimizer(optimizer);
  if (!saved)
    throw InvalidArgument("the optimizer's state cannot be saved: " +
                          obstacle_to_saving(optimizer));
  Metadata& metadata = saved->metadata;
  metadata[key_entry] = key;
  metadata[parameters_entry] = descriptions(numbered(optimizer, shards)).dump();
  // `save_safetensors` fills in the checksums.
  metadata[std::string(header_checksum_key)] = metadata[std::string(data_checksum_key)] = "";
  save_safetensors(file_name(folder, position), saved->views(), metadata);
}

void read_shards(const fs::path& folder, ::torch::optim::Optimizer& optimizer,
                 const ParameterShards& shards, const std::string& place_here) {
  const ShardIndex index = read_shard_index(folder);
  const at::NoGradGuard no_grad;
  Collector collector(numbered(optimizer, shards));
  for (int file = 0; file < index.ranks; ++file) {
    const ShardPosition position{.index = file, .ranks = index.ranks};
    if (collector.needs(position)) collector.take(file_name(folder, position), position, index.key);
  }
  load_optimizer(collector.state(folder, place_here), optimizer);
}

}  // namespace kolo::internal
