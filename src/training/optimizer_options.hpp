// What a DistributedOptimizer was asked for.
#pragma once

#include "kolo/optimizer.hpp"
#include "training/agreement.hpp"

namespace kolo::detail {

/// Throws InvalidArgument, which prints the value, unless the options can be used. Names of
/// parameters are not looked at.
void require_valid(const DistributedOptimizerOptions& options);

/// The options that must be alike on all ranks, but for the groups.
[[nodiscard]] Item describe(const DistributedOptimizerOptions& options);

/// What gradients are multiplied by before and after they are added. With Accumulation::mean, the
/// first divides by the passes of a complete step.
[[nodiscard]] double prescale(const DistributedOptimizerOptions& options);
[[nodiscard]] double postscale(const DistributedOptimizerOptions& options);

}  // namespace kolo::detail
