// SPDX-License-Identifier: Apache-2.0
// The joint norm of gradients, and clipping by it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kolo/export.hpp"
#include "kolo/process_set.hpp"
#include "kolo/tensor.hpp"

namespace kolo::internal {

/// Throws InvalidArgument unless `value`, the option `name` of clip_grad_norm, is positive.
KOLO_EXPORT void require_positive(const char* name, double value);

/// Collective. Returns the largest of the ranks' norms of reduced gradients. The gradients are
/// equal on all ranks, but ranks may sum them with different instruction sets or numbers of
/// threads: one norm for all keeps the clipped gradients equal bit for bit. Unlike a broadcast of
/// one rank's norm, the maximum works while ranks have joined. Outside the set, returns `norm`.
[[nodiscard]] KOLO_EXPORT double agree_on_norm(double norm, const std::string& operation,
                                               const ProcessSet& set);

/// Collective. Returns the norm of all ranks' shards from the norm of this rank's shards. `type` is
/// that of `clip_grad_norm`, where infinity means the maximum norm. Outside the set, returns
/// `norm`.
[[nodiscard]] KOLO_EXPORT double join_norms(double norm, double type, const std::string& operation,
                                            const ProcessSet& set);

/// Added to the norm before dividing by it, as in torch::nn::utils::clip_grad_norm_.
inline constexpr double clip_margin = 1e-6;

/// The factor that scales gradients of this norm to `max_norm`; nothing if the norm is not above
/// it. A norm that is NaN gives the factor NaN.
[[nodiscard]] KOLO_EXPORT std::optional<double> clip_factor(double max_norm, double norm);

/// The square root of the sum of all elements' squares, computed in f64 in the order of memory.
/// Throws InvalidArgument, in the name of `function`, for integers and for GPU memory.
[[nodiscard]] double norm_of(const std::vector<NamedTensor>& gradients, const char* function);

/// Multiplies all elements.
void multiply(const std::vector<NamedTensor>& gradients, double factor);

}  // namespace kolo::internal
