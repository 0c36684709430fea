// SPDX-License-Identifier: Apache-2.0
// The state of a ShardedOptimizer: in full, and in files, one for each rank with the shards of that
// rank.
//
// A folder has files "state-<number>-of-<ranks>.safetensors", numbered from 1, with the tensors of
// `save_optimizer`, and an index, training/checkpoint/index_files.hpp. Each file and the index have
// the same key, so that files of two states are never mixed.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>
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
#include "training/checkpoint/index_files.hpp"
#include "training/checkpoint/safetensors_header.hpp"
#include "training/checkpoint/strict_json.hpp"
#include "training/optimizer/shard_gather.hpp"

namespace kolo::detail {

using namespace internal;
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
    for (const ::torch::Tensor& shard : group.params()) all.push_back(shards.of_shard(shard));
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
        copy_shard(path, name, tensor, position);
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
    std::string there = "unknown";
    try {
      const json parsed = parse_strict_json(text);
      if (parsed == here) return;
      there = parsed.dump();
    } catch (const JsonFault&) {  // the message says that they are unknown
    }
    throw InvalidArgument("this state is that of other parameters: they are " + there +
                          " in the files and " + here.dump() + " here");
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

  void copy_shard(const fs::path& path, const std::string& name, const ::torch::Tensor& from,
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

// Writes the file of one rank. Throws CheckpointError, and InvalidArgument for an optimizer of an
// unknown class.
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

// Reads this rank's parts from the files that have them, written by any number of ranks.
// `place_here` is the `shard_place_text` of this rank. Throws CheckpointError, and InvalidArgument
// for the state of another optimizer; nothing has changed then.
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

std::string ShardedReducer::place() const { return shard_place_text(state_->position); }

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
