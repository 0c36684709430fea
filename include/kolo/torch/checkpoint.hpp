// SPDX-License-Identifier: Apache-2.0
// The states of LibTorch modules, optimizers and random number generators, as parts for
// `Checkpointer`, and safetensors files of modules and tensors. No communication.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/ordered_dict.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <concepts>
#include <filesystem>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/state_dict.hpp"
#include "kolo/training/checkpoint.hpp"

namespace kolo {

/// Parameters with their names, such as "0.weight". The names must be equal on all ranks.
using NamedParameters = std::vector<std::pair<std::string, ::torch::Tensor>>;

/// The result of a module's `named_parameters()` and `named_buffers()`.
using ModuleTensors = ::torch::OrderedDict<std::string, ::torch::Tensor>;

namespace detail {

inline const NamedParameters& pairs_of(const NamedParameters& list) { return list; }
inline NamedParameters pairs_of(const ModuleTensors& list) { return list.pairs(); }
/// For the lists of a `torch::jit::Module`, whose elements have a name and a value.
template <typename List>
  requires requires(const List& list) {
    { (*list.begin()).name } -> std::convertible_to<std::string>;
    { (*list.begin()).value } -> std::convertible_to<::torch::Tensor>;
  }
NamedParameters pairs_of(const List& list) {
  NamedParameters pairs;
  for (const auto& item : list) pairs.emplace_back(item.name, item.value);
  return pairs;
}

}  // namespace detail

/// A list of tensors with their names: NamedParameters, or what `named_parameters()` of a module
/// returns.
template <typename T>
concept ParameterNaming = requires(const T& list) {
  detail::pairs_of(list);
};

/// A module holder, as `TORCH_MODULE` defines it.
template <typename T>
concept HoldsModule = requires(const T& holder) {
  requires std::derived_from<typename T::ContainedType, ::torch::nn::Module>;
};

/// A module: a `torch::nn::Module`, a module holder, a `torch::jit::Module`, or another class with
/// `named_parameters()` and `named_buffers()`.
template <typename T>
concept AnyModule = HoldsModule<T> || requires(const T& module) {
  { module.named_parameters() } -> ParameterNaming;
  { module.named_buffers() } -> ParameterNaming;
};

namespace detail {

template <AnyModule Module>
NamedParameters module_parameters(const Module& module) {
  if constexpr (HoldsModule<Module>) {
    return pairs_of(module->named_parameters());
  } else {
    return pairs_of(module.named_parameters());
  }
}

template <AnyModule Module>
NamedParameters module_buffers(const Module& module) {
  if constexpr (HoldsModule<Module>) {
    return pairs_of(module->named_buffers());
  } else {
    return pairs_of(module.named_buffers());
  }
}

/// The defined parameters and buffers of a module.
template <AnyModule Module>
NamedParameters module_tensors(const Module& module) {
  NamedParameters tensors = module_parameters(module);
  for (auto& buffer : module_buffers(module)) tensors.push_back(std::move(buffer));
  std::erase_if(tensors, [](const auto& named) { return !named.second.defined(); });
  return tensors;
}

/// The names of an optimizer's parameters: a list, or the module that has them.
template <typename T>
concept NamesParameters = ParameterNaming<T> || AnyModule<T>;

template <NamesParameters Names>
NamedParameters names_of(const Names& names) {
  if constexpr (AnyModule<Names>) {
    return module_parameters(names);
  } else {
    return pairs_of(names);
  }
}

}  // namespace detail

/// A module's parameters and buffers as a state, and back. `Checkpointer` stores them tensor by
/// tensor (`model.layers.0.weight`). In two cases the state is a LibTorch archive instead: if the
/// module has complex or sparse tensors, which a safetensors file cannot hold, or if `save` of the
/// module or of a submodule writes more than parameters and buffers. `load_state` reads both forms;
/// for an archive, it calls the module's `load`. It assigns to the module's existing tensors, so
/// optimizers of the module stay valid. It throws InvalidArgument if the state is not of a module
/// with the same names and shapes. Nothing has changed then, except that an archive may have been
/// loaded in part. A weight with several names (a tied weight) needs only one of them.
///
/// `state` copies. `state_view` refers to the tensors, which are copied when they are saved. Make a
/// new view for each save: archives, and numbers such as learning rates, are copied when the view
/// is made, and do not follow later changes.
///
///     checkpoints.save_async(step,
///                            {{"model", kolo::state_view(*model)},
///                             {"optimizer", kolo::state_view(optimizer)},
///                             {"sampler", sampler.state()}},
///                            {.per_rank = {{"random", kolo::random_state()}}});
///
///     kolo::load_state(*model, checkpoint.part("model"));
[[nodiscard]] KOLO_EXPORT StateView state_view(const ::torch::nn::Module& module);
[[nodiscard]] KOLO_EXPORT StateDict state(const ::torch::nn::Module& module);
KOLO_EXPORT void load_state(::torch::nn::Module& module, const StateView& state);

/// As above for named tensors that no module lists. They must be dense and not complex.
[[nodiscard]] KOLO_EXPORT StateView state_view(const NamedParameters& tensors);
[[nodiscard]] KOLO_EXPORT StateDict state(const NamedParameters& tensors);
KOLO_EXPORT void load_state(const NamedParameters& into, const StateView& state);

/// An optimizer's state (such as momentum) and the options of its parameter groups, as above. The
/// state of SGD, Adam, AdamW, RMSprop and Adagrad has PyTorch's names: `state.0.exp_avg` for the
/// optimizer's first parameter, and `param_groups` in the metadata, as JSON. Other optimizers
/// become LibTorch archives. For a DistributedOptimizer, call it between a step and the next
/// backward. The state of a ShardedOptimizer holds only this rank's shards: save it in
/// `CheckpointExtras::per_rank`. `load_state` takes it back on the same rank of as many ranks, and
/// `load_sharded_state` loads the shards of all ranks on any number of ranks. Throws
/// InvalidArgument as above.
[[nodiscard]] KOLO_EXPORT StateView state_view(const ::torch::optim::Optimizer& optimizer);
[[nodiscard]] KOLO_EXPORT StateDict state(const ::torch::optim::Optimizer& optimizer);
KOLO_EXPORT void load_state(::torch::optim::Optimizer& optimizer, const StateView& state);

/// Types with their own overloads above.
template <typename T>
concept HasOverload =
    std::derived_from<T, ::torch::nn::Module> || std::derived_from<T, ::torch::optim::Optimizer> ||
    std::same_as<std::remove_cv_t<T>, NamedParameters>;

/// As above for other modules, and for anything else that `torch::save` takes: a tensor, a vector
/// of tensors. A `torch::jit::Module` is stored without its attributes.
template <typename T>
  requires(!HasOverload<T>)
[[nodiscard]] StateView state_view(const T& value) {
  if constexpr (HoldsModule<T>) {
    return state_view(static_cast<const ::torch::nn::Module&>(*value));
  } else if constexpr (AnyModule<T>) {
    return state_view(detail::module_tensors(value));
  } else {
    std::ostringstream stream;
    ::torch::save(value, stream);
    return stream.str();
  }
}
template <typename T>
  requires(!HasOverload<T>)
[[nodiscard]] StateDict state(const T& value) { return state_view(value).copy(); }
template <typename T>
  requires(!HasOverload<T> && !std::same_as<std::remove_cv_t<T>, TensorViews>)
void load_state(T& value, const StateView& state) {
  if constexpr (HoldsModule<T>) {
    load_state(static_cast<::torch::nn::Module&>(*value), state);
  } else if constexpr (AnyModule<T>) {
    load_state(detail::module_tensors(value), state);
  } else {
    std::istringstream stream(state.text());
    // LibTorch appends to a vector when loading.
    if constexpr (std::same_as<T, std::vector<::torch::Tensor>>) value.clear();
    ::torch::load(value, stream);
  }
}

/// The state of this process's random number generators: the tensors `cpu` and, if this rank has a
/// GPU (`local_device`), `cuda`. The state differs between ranks: save it in
/// `CheckpointExtras::per_rank`.
[[nodiscard]] KOLO_EXPORT StateDict random_state();

/// Restores the generators. Throws InvalidArgument unless the state came from `random_state` in a
/// process with the same type of device.
KOLO_EXPORT void load_random_state(const StateView& state);

/// A copy of the elements, on the CPU. Throws InvalidArgument for u16, u32 and u64, which LibTorch
/// lacks.
[[nodiscard]] KOLO_EXPORT ::torch::Tensor to_tensor(const StoredTensor& stored);

/// Writes a module's parameters and buffers under PyTorch's names ("layers.0.weight"), or any named
/// tensors, from any device. `path` always names a complete file. Throws InvalidArgument for a
/// sparse or complex tensor, and CheckpointError if the system fails. Not collective.
KOLO_EXPORT void save_safetensors(const std::filesystem::path& path, const NamedParameters& tensors,
                                  const Metadata& metadata = {{"format", "pt"}});
template <AnyModule Module>
void save_safetensors(const std::filesystem::path& path, const Module& module,
                      const Metadata& metadata = {{"format", "pt"}}) {
  save_safetensors(path, detail::module_tensors(module), metadata);
}

/// Reads a safetensors file, the files of an index, or a checkpoint's folder, into a module's
/// existing parameters and buffers, or into any named tensors, by name. Elements are converted to
/// the dtype of the existing tensor and copied to its device. Throws InvalidArgument for a tensor
/// of another shape and, if `strict`, for missing and unexpected names; then no tensor is changed.
/// A tied weight needs only one of its names in the file. Throws CheckpointError for a damaged
/// file. Not collective: on several ranks, load on one and call `broadcast_parameters`, or load the
/// same file on all.
///
///     kolo::load_safetensors("resnet50.safetensors", *model);
///     kolo::load_safetensors("resnet50.safetensors", *backbone,
///                            {.strict = false, .prefix = "body."});
KOLO_EXPORT UnmatchedNames load_safetensors(const std::filesystem::path& path,
                                            const NamedParameters& into,
                                            const SafetensorsOptions& options = {});
template <AnyModule Module>
UnmatchedNames load_safetensors(const std::filesystem::path& path, const Module& module,
                                const SafetensorsOptions& options = {}) {
  return load_safetensors(path, detail::module_tensors(module), options);
}

}  // namespace kolo
