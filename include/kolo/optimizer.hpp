// DistributedOptimizer: an optimizer whose gradients are averaged over the ranks before each step.
#pragma once

#include "kolo/collectives.hpp"

namespace kolo {

struct DistributedOptimizerOptions {
  ReduceOp op = ReduceOp::average;
  Compression compression = Compression::none;
};

/// Wraps an `Optimizer`. `kolo/torch.hpp` has the one for LibTorch's optimizers.
template <typename Optimizer>
class DistributedOptimizer;

}  // namespace kolo
