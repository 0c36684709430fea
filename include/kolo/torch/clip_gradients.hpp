// SPDX-License-Identifier: Apache-2.0
// Clips gradients after their reduction.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/optim/optimizer.h>

#include <vector>

#include "kolo/export.hpp"
#include "kolo/torch/optimizer.hpp"

namespace kolo {

struct ClipOptions {
  double norm_type = 2.0;         ///< The p of the p-norm; positive. Infinity: maximum norm.
  bool refuse_nonfinite = false;  ///< Throw Error, on all ranks, for a norm that is not finite.
};

namespace detail {

KOLO_EXPORT double clip_grad_norm(const std::vector<::torch::optim::OptimizerParamGroup>& groups,
                                  double max_norm, const ClipOptions& options,
                                  const ProcessSet& set);

}  // namespace detail

/// Calls the optimizer's `synchronize`, then scales the gradients if their joint norm exceeds
/// `max_norm`. Returns the norm before scaling. Call `optimizer.step()` afterwards:
///
///     loss.backward();
///     kolo::clip_grad_norm(optimizer, 1.0);
///     optimizer.step();
///
/// The norm and the gradients have the same bits on every rank of the optimizer's set. Collective
/// in that set, like `synchronize`. Throws InvalidArgument, on this rank, if `max_norm` or the norm
/// type is not positive, and the errors of `synchronize`.
template <typename Base>
  requires std::derived_from<Base, ::torch::optim::Optimizer>
double clip_grad_norm(DistributedOptimizer<Base>& optimizer, double max_norm,
                      const ClipOptions& options = {}) {
  optimizer.synchronize();
  return detail::clip_grad_norm(optimizer.param_groups(), max_norm, options,
                                optimizer.process_set());
}

}  // namespace kolo
