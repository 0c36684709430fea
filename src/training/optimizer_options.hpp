// What a DistributedOptimizer was asked for.
#pragma once

#include "kolo/export.hpp"  // kolo::torch, another library, uses what is marked
#include "kolo/optimizer.hpp"
#include "training/agreement.hpp"

namespace kolo::detail {

/// Throws InvalidArgument, which prints the value, unless the options can be used. Names of
/// parameters are not looked at.
KOLO_EXPORT void require_valid(const DistributedOptimizerOptions& options);

/// The options that must be alike on all ranks, but for the groups.
[[nodiscard]] KOLO_EXPORT Item describe(const DistributedOptimizerOptions& options);

/// What gradients are multiplied by before and after they are added. With Accumulation::mean, the
/// first divides by the passes of a complete step.
[[nodiscard]] KOLO_EXPORT double prescale(const DistributedOptimizerOptions& options);
[[nodiscard]] KOLO_EXPORT double postscale(const DistributedOptimizerOptions& options);

}  // namespace kolo::detail
