// SPDX-License-Identifier: Apache-2.0
// LibTorch modules, optimizers and random numbers as parts for `Checkpointer`.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize.h>

#include <concepts>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "kolo/export.hpp"

namespace kolo {

/// Converts a module's parameters and buffers to the bytes of a safetensors file and back.
/// `Checkpointer` stores them tensor by tensor (`model.layers.0.weight`). A module with complex or
/// sparse tensors, which such a file cannot hold, becomes a LibTorch archive. `from_bytes` reads
/// both formats, and assigns to the module's existing tensors, so optimizers of the module stay
/// valid. It throws InvalidArgument, before anything changes, if the bytes are not a module with
/// the same names and shapes; from an archive, the module may already be partly loaded.
///
///     checkpoints.save(step,
///                      {{"model", kolo::to_bytes(*model)},
///                       {"optimizer", kolo::to_bytes(optimizer)},
///                       {"sampler", sampler.state()}},
///                      {.own = {{"random", kolo::random_state()}}});
///
///     kolo::from_bytes(checkpoint.part("model"), *model);
[[nodiscard]] KOLO_EXPORT std::string to_bytes(const ::torch::nn::Module& module);
KOLO_EXPORT void from_bytes(const std::string& bytes, ::torch::nn::Module& module);

/// Converts an optimizer's state (such as momentum) and the options of its parameter groups to
/// bytes and back. The state of SGD, Adam, AdamW, RMSprop and Adagrad has PyTorch's names:
/// `state.0.exp_avg` for the optimizer's first parameter, and `param_groups` in the metadata, as
/// JSON. Other optimizers become LibTorch archives. For a DistributedOptimizer, call it between a
/// step and the next backward. The bytes of a ShardedOptimizer hold only this rank's shards, and
/// load only on this rank: save them in `CheckpointExtras::own`, or save `whole_state`. Throws
/// InvalidArgument as above.
[[nodiscard]] KOLO_EXPORT std::string to_bytes(const ::torch::optim::Optimizer& optimizer);
KOLO_EXPORT void from_bytes(const std::string& bytes, ::torch::optim::Optimizer& optimizer);

/// Types with their own overloads above.
template <typename T>
concept ModuleOrOptimizer =
    std::derived_from<T, ::torch::nn::Module> || std::derived_from<T, ::torch::optim::Optimizer>;

/// A module holder, as `TORCH_MODULE` defines it.
template <typename T>
concept HoldsModule = requires(const T& holder) {
  requires std::derived_from<typename T::ContainedType, ::torch::nn::Module>;
};

/// As above for anything else that `torch::save` takes: a tensor, a vector of tensors, a module
/// holder.
template <typename T>
  requires(!ModuleOrOptimizer<T>)
[[nodiscard]] std::string to_bytes(const T& value) {
  std::ostringstream stream;
  ::torch::save(value, stream);
  return stream.str();
}
template <typename T>
  requires(!ModuleOrOptimizer<T>)
void from_bytes(const std::string& bytes, T& value) {
  if constexpr (HoldsModule<T>) {
    from_bytes(bytes, static_cast<::torch::nn::Module&>(*value));
  } else {
    std::istringstream stream(bytes);
    // LibTorch appends to a vector when loading.
    if constexpr (std::same_as<T, std::vector<::torch::Tensor>>) value.clear();
    ::torch::load(value, stream);
  }
}

/// The state of this process's random number generators, as a safetensors file: the tensors `cpu`
/// and, if this rank has a GPU (`local_device`), `cuda`. The state differs between ranks: save it
/// in `CheckpointExtras::own`.
[[nodiscard]] KOLO_EXPORT std::string random_state();

/// Restores the generators. Throws InvalidArgument unless the string came from `random_state` in a
/// process with the same type of device.
KOLO_EXPORT void set_random_state(const std::string& state);

}  // namespace kolo
