// SPDX-License-Identifier: Apache-2.0
// Preparations for training with LibTorch: this rank's device, and parameters, buffers, optimizer
// state and other objects that are equal on all ranks.
#pragma once

// clang 14 compiles LibTorch 1.13 as C++20 only if this header is included first.
#include <ATen/core/ivalue.h>

#include <c10/core/Device.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <functional>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/export.hpp"
#include "kolo/torch/checkpoint.hpp"

namespace kolo {

/// The device that this rank should use: the GPU with index `local_rank()` modulo the number of
/// visible GPUs, or the CPU if there is no GPU or if Kolo or LibTorch lacks CUDA. In an elastic
/// job, where `local_rank()` changes, a process keeps its GPU. Needs a session.
[[nodiscard]] KOLO_EXPORT ::torch::Device local_device();

/// Copies `root`'s parameters and buffers to every rank: those of a module, or a list of named
/// tensors. `root` is a world rank and a member of the set. Collective. Throws Mismatch on every
/// rank, before anything changes, if names, shapes or dtypes differ.
KOLO_EXPORT void broadcast_parameters(const NamedParameters& tensors, int root,
                                      const ProcessSet& set = {});
template <AnyModule Module>
void broadcast_parameters(const Module& module, int root, const ProcessSet& set = {}) {
  broadcast_parameters(detail::module_tensors(module), root, set);
}
template <ParameterNaming List>
void broadcast_parameters(const List& list, int root, const ProcessSet& set = {}) {
  broadcast_parameters(detail::pairs_of(list), root, set);
}

/// Throws Mismatch on every rank of the set, naming the first tensor that differs and the ranks
/// that differ from the first one, unless the parameters and buffers of a module, or a list of
/// named tensors, are equal on all ranks, bit for bit. Without synchronization, the statistics of
/// batch normalization differ: pass `module->named_parameters()` to compare only parameters.
/// Tensors on a GPU are copied to the host. Collective. See `require_equal` in kolo/optimizer.hpp.
KOLO_EXPORT void require_equal(const NamedParameters& tensors, const ProcessSet& set = {});
template <AnyModule Module>
void require_equal(const Module& module, const ProcessSet& set = {}) {
  require_equal(detail::module_tensors(module), set);
}
template <ParameterNaming List>
void require_equal(const List& list, const ProcessSet& set = {}) {
  require_equal(detail::pairs_of(list), set);
}

/// Copies `root`'s buffers, such as the statistics of batch normalization, to every rank. Call it
/// before each forward in training, as DistributedDataParallel does, or only before evaluation or a
/// checkpoint. The buffers travel as one operation per device. `root` is a world rank and a member
/// of the set. Collective. Throws Mismatch on every rank, before anything changes, if names, shapes
/// or dtypes differ. A list of named tensors is taken as it is.
KOLO_EXPORT void broadcast_buffers(const NamedParameters& buffers, int root,
                                   const ProcessSet& set = {});
template <AnyModule Module>
void broadcast_buffers(const Module& module, int root, const ProcessSet& set = {}) {
  broadcast_buffers(detail::module_buffers(module), root, set);
}

/// Copies the state of `root`'s optimizer (such as momentum) and the options of its parameter
/// groups (such as the learning rate) to every rank. `root` is a world rank and a member of the
/// set. Collective. Throws Mismatch on every rank, before anything changes, if the optimizers'
/// classes, groups or parameters differ, and InvalidArgument for a ShardedOptimizer.
KOLO_EXPORT void broadcast_optimizer_state(::torch::optim::Optimizer& optimizer, int root,
                                           const ProcessSet& set = {});

/// Sets the learning rate of all parameter groups to the same value, on this rank.
KOLO_EXPORT void set_learning_rate(::torch::optim::Optimizer& optimizer, double learning_rate);
/// Sets a learning rate for each parameter group, in the order of the groups. Throws
/// InvalidArgument for another number of rates.
KOLO_EXPORT void set_learning_rate(::torch::optim::Optimizer& optimizer,
                                   const std::vector<double>& learning_rates);

namespace detail {

/// Calls `save` on the root and `load` on the other ranks.
KOLO_EXPORT void broadcast_saved(const std::function<StateDict()>& save,
                                 const std::function<void(const StateDict&)>& load, int root,
                                 const BroadcastOptions& options);

}  // namespace detail

/// Copies `root`'s `value` to every rank: a module, a tensor, a vector of tensors, or anything else
/// that `torch::save` and `torch::load` take. A module must have the same names and shapes as the
/// root's. Collective. If any rank fails to save or load, every rank throws an Error that names the
/// failed ranks. For text use `broadcast`, which takes a `std::string`.
template <typename T>
void broadcast_archive(T& value, int root, const BroadcastOptions& options = {}) {
  detail::broadcast_saved([&] { return state(value); },
                          [&](const StateDict& saved) { load_state(value, saved); }, root, options);
}

}  // namespace kolo
