// SPDX-License-Identifier: Apache-2.0
// DistributedGradients for LibTorch's modules.
#pragma once

#include "kolo/torch/optimizer.hpp"

// After kolo/torch/optimizer.hpp, as clang 14 needs it.
#include <torch/nn/module.h>

namespace kolo {

/// Reduces the gradients of a module's parameters; its optimizers need no wrapper:
///
///     kolo::DistributedGradients gradients(*model);
///     torch::optim::SGD optimizer(model->parameters(), 0.01);
///
/// Gradients are final when `backward()` returns, as with DistributedOptimizer, whose rules for
/// backward passes and for construction apply. This class does not see steps: every
/// `backward_passes_per_step`-th pass reduces, and ranks must match in passes, not in steps.
/// Construct it after moving the module to its device and dtype. Neither movable nor copyable; not
/// thread-safe.
class DistributedGradients {
 public:
  KOLO_EXPORT explicit DistributedGradients(::torch::nn::Module& module,
                                            const DistributedOptimizerOptions& options = {});
  DistributedGradients(const DistributedGradients&) = delete;
  DistributedGradients& operator=(const DistributedGradients&) = delete;

  /// Backward passes stay on this rank while the guard lives. The next pass that reduces includes
  /// their gradients.
  [[nodiscard]] NoSync no_sync() const { return reducer_.no_sync(); }

  /// Reduces the gradients of passes that stayed on this rank. Collective if there are any.
  KOLO_EXPORT void synchronize();

  /// Like DistributedOptimizer's.
  KOLO_EXPORT void rejoin();

 private:
  detail::GradientReducer::Groups groups_;
  detail::GradientReducer reducer_;
};

}  // namespace kolo
