// SPDX-License-Identifier: Apache-2.0
// The computations of SyncBatchNorm that involve the other ranks.
#pragma once

#include <torch/types.h>

#include "kolo/process_set.hpp"

namespace kolo::internal {

/// Statistics over the batches of all ranks, per channel, in f64.
struct BatchStatistics {
  ::torch::Tensor mean;
  ::torch::Tensor variance;  // biased: divided by the count
  double count;              // values per channel
};

/// Computes the statistics with one unnamed allreduce, which autograd records if gradients are
/// enabled. `input` is [N, C, ...]. Throws InvalidArgument, on all ranks, if all batches together
/// have fewer than two values per channel.
[[nodiscard]] BatchStatistics batch_statistics(const ::torch::Tensor& input, const ProcessSet& set);

/// (input - mean) / sqrt(variance + eps) * weight + bias. The gradient includes the dependence of
/// the statistics on all ranks' inputs, so backward runs one unnamed allreduce.
[[nodiscard]] ::torch::Tensor normalize(const ::torch::Tensor& input, const ::torch::Tensor& weight,
                                        const ::torch::Tensor& bias,
                                        const BatchStatistics& statistics, double eps,
                                        const ProcessSet& set);

}  // namespace kolo::internal
