// What SyncBatchNorm computes with the other ranks.
#pragma once

#include <torch/types.h>

#include "kolo/process_set.hpp"

namespace kolo::detail {

/// Of the batches of all ranks, per channel, in f64.
struct BatchStatistics {
  ::torch::Tensor mean;
  ::torch::Tensor variance;  // the sum of squares divided by the count
  double count;              // values per channel
};

/// One allreduce without a name; recorded by autograd where gradients are on. `input` is
/// [N, C, ...]. Throws InvalidArgument, on all ranks, unless there are two values per channel.
[[nodiscard]] BatchStatistics batch_statistics(const ::torch::Tensor& input, const ProcessSet& set);

/// (input - mean) / sqrt(variance + eps) * weight + bias, with the statistics' own dependence on
/// the ranks' inputs in the gradient: its backward is one allreduce without a name.
[[nodiscard]] ::torch::Tensor normalize(const ::torch::Tensor& input, const ::torch::Tensor& weight,
                                        const ::torch::Tensor& bias,
                                        const BatchStatistics& statistics, double eps,
                                        const ProcessSet& set);

}  // namespace kolo::detail
