// What a checkpoint of a training with LibTorch is made of: parts for `Checkpointer` to keep.
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

/// A module's parameters and buffers as bytes, and back. `from_bytes` gives the module's own
/// tensors new values: optimizers go on working. It throws InvalidArgument if the bytes are of a
/// module of another structure or no module at all; the module may then be changed in part.
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

/// An optimizer's state (momentum and the like) and the options of its parameter groups, and back.
/// A DistributedOptimizer is an optimizer too: call this between a step and the next backward.
/// Throws InvalidArgument as above.
[[nodiscard]] KOLO_EXPORT std::string to_bytes(const ::torch::optim::Optimizer& optimizer);
KOLO_EXPORT void from_bytes(const std::string& bytes, ::torch::optim::Optimizer& optimizer);

/// What has bytes of its own above.
template <typename T>
concept ModuleOrOptimizer =
    std::derived_from<T, ::torch::nn::Module> || std::derived_from<T, ::torch::optim::Optimizer>;

/// Anything else that `torch::save` takes: a tensor, a vector of tensors, a module's holder.
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
  std::istringstream stream(bytes);
  // LibTorch adds to a vector what it loads.
  if constexpr (std::same_as<T, std::vector<::torch::Tensor>>) value.clear();
  ::torch::load(value, stream);
}

/// Where the random numbers of this process are: those of the CPU, and of this rank's GPU
/// (`local_device`) if it has one. Each rank has its own: save it with `CheckpointExtras::own`.
[[nodiscard]] KOLO_EXPORT std::string random_state();

/// Goes on from there. Throws InvalidArgument for anything but what `random_state` gave on a
/// process with the same kind of device.
KOLO_EXPORT void set_random_state(const std::string& state);

}  // namespace kolo
