// What must be alike on all ranks before they train: parameters, buffers, the optimizer's state,
// and whatever else LibTorch can save.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/ordered_dict.h>
#include <torch/serialize.h>

#include <concepts>
#include <functional>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/export.hpp"

namespace kolo {

/// Parameters and the names that all ranks know them by, such as "0.weight".
using NamedParameters = std::vector<std::pair<std::string, ::torch::Tensor>>;

/// What a module's `named_parameters()` and `named_buffers()` give.
using ModuleTensors = ::torch::OrderedDict<std::string, ::torch::Tensor>;

/// Every rank's parameters and buffers become copies of `root`'s, a rank of the world and a member
/// of the set. Collective. Throws Mismatch on every rank if names, shapes or dtypes differ between
/// them; then nothing was changed.
KOLO_EXPORT void broadcast_parameters(::torch::nn::Module& module, int root,
                                      const ProcessSet& set = {});
KOLO_EXPORT void broadcast_parameters(const ModuleTensors& tensors, int root,
                                      const ProcessSet& set = {});

/// Every rank's optimizer goes on as `root`'s would: its state (momentum and the like) and the
/// options of each parameter group (learning rate and the like). Collective. Throws Mismatch on
/// every rank if the optimizers' classes, groups or parameters differ; then nothing was changed.
KOLO_EXPORT void broadcast_optimizer_state(::torch::optim::Optimizer& optimizer, int root,
                                           const ProcessSet& set = {});

/// Sets the learning rate of every parameter group, on this rank.
KOLO_EXPORT void set_learning_rate(::torch::optim::Optimizer& optimizer, double learning_rate);

namespace detail {

/// `save` writes on the root, `load` reads on the others.
KOLO_EXPORT void broadcast_saved(const std::function<void(std::ostream&)>& save,
                                 const std::function<void(std::istream&)>& load, int root,
                                 const BroadcastOptions& options);

}  // namespace detail

/// Every rank's `value` becomes what `root` would save and load: a module, a tensor, a vector of
/// tensors, or anything else that `torch::save` and `torch::load` take. A module must have the
/// root's structure. Collective; every rank throws if a rank could not save or load, and names the
/// ranks that could not. Text needs no archive: `broadcast` takes a `std::string`.
template <typename T>
void broadcast_archive(T& value, int root, const BroadcastOptions& options = {}) {
  const auto save = [&](std::ostream& stream) { ::torch::save(value, stream); };
  const auto load = [&](std::istream& stream) {
    // LibTorch adds to a vector what it loads.
    if constexpr (std::same_as<T, std::vector<::torch::Tensor>>) value.clear();
    ::torch::load(value, stream);
  };
  detail::broadcast_saved(save, load, root, options);
}

}  // namespace kolo
