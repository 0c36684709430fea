// SPDX-License-Identifier: Apache-2.0
// ReproducibleBackward: ReproducibleGradients for LibTorch.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/types.h>

#include <functional>
#include <memory>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/torch/checkpoint.hpp"
#include "kolo/training/reproducible.hpp"

namespace kolo {

/// ReproducibleGradients for LibTorch's parameters. The optimizer is a plain one:
///
///     kolo::ReproducibleBackward backward(*model, {.shards = 12});
///     torch::optim::AdamW optimizer(model->parameters());
///     for (...) {
///       const double loss = backward.run([&](int shard) {
///         torch::manual_seed(seed + 12 * step + shard);  // if the model draws random numbers
///         return loss_of(model, batch(step, shard));
///       });
///       optimizer.step();
///     }
///
/// All ranks then have the parameters that one process has that computes all shards. The rules of
/// ReproducibleGradients apply. Begin with the same parameters everywhere (`broadcast_parameters`).
/// LibTorch's number of threads must be equal on all ranks (`at::set_num_threads`), and on GPUs its
/// kernels must be deterministic. Gradients on GPUs are added on the host. Movable; not
/// thread-safe.
class ReproducibleBackward {
 public:
  /// Local. The parameters must not be replaced later. Throws InvalidArgument for an empty or
  /// repeated name and for options that cannot be used.
  KOLO_EXPORT ReproducibleBackward(const NamedParameters& parameters,
                                   const ReproducibleOptions& options);
  /// The parameters of a module or of its holder.
  template <AnyModule Module>
  ReproducibleBackward(const Module& module, const ReproducibleOptions& options)
      : ReproducibleBackward(detail::module_parameters(module), options) {}
  KOLO_EXPORT ReproducibleBackward(ReproducibleBackward&&) noexcept;
  KOLO_EXPORT ReproducibleBackward& operator=(ReproducibleBackward&&) noexcept;
  KOLO_EXPORT ~ReproducibleBackward();

  /// As ReproducibleGradients::own_shards.
  [[nodiscard]] KOLO_EXPORT std::vector<int> own_shards() const;

  /// Collective. For each of this rank's shards, calls `loss(shard)`, which returns the loss of
  /// that shard, a scalar, and runs its backward. Then sets the gradients of the parameters to the
  /// average over all shards, and returns that of the losses. Earlier gradients are dropped. A
  /// parameter that no shard uses has no gradient; one that some shards use has zero from the
  /// others. Errors are those of ReproducibleGradients::reduce; after one the gradients are
  /// invalid.
  KOLO_EXPORT double run(const std::function<::torch::Tensor(int shard)>& loss);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kolo
