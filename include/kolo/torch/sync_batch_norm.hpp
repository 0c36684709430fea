// SPDX-License-Identifier: Apache-2.0
// Batch normalization over the batches of all ranks (synchronized batch normalization).
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/options/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <ostream>
#include <utility>

#include "kolo/export.hpp"
#include "kolo/process_set.hpp"

namespace kolo {

/// The module that SyncBatchNorm holds.
class KOLO_EXPORT SyncBatchNormImpl
    : public ::torch::nn::NormImplBase<0, SyncBatchNormImpl, ::torch::nn::BatchNormOptions> {
 public:
  explicit SyncBatchNormImpl(const ::torch::nn::BatchNormOptions& options, ProcessSet set = {});

  /// Shares the parameters of `other` and copies its statistics.
  template <size_t D, typename Other>
  SyncBatchNormImpl(const ::torch::nn::BatchNormImplBase<D, Other>& other, ProcessSet set);

  [[nodiscard]] ::torch::Tensor forward(const ::torch::Tensor& input);

  void pretty_print(std::ostream& stream) const override;

  [[nodiscard]] const ProcessSet& process_set() const { return set_; }

 protected:
  void _check_input_dim(const ::torch::Tensor& input) override;

 private:
  void share(const ::torch::Tensor& their_weight, const ::torch::Tensor& their_bias);
  void copy_statistics(const ::torch::Tensor& mean, const ::torch::Tensor& variance,
                       const ::torch::Tensor& batches);
  [[nodiscard]] bool is_synchronized() const;
  [[nodiscard]] double local_factor() const;
  void update_statistics(const ::torch::Tensor& mean, const ::torch::Tensor& variance,
                         const ::torch::Tensor& count);

  ProcessSet set_;
};

/// Batch normalization like `torch::nn::BatchNorm1d`, `2d` and `3d` that, in training, computes
/// mean, variance and gradients over the batches of all ranks, as one process would on the whole
/// batch. Ranks may have batches of different sizes, or none. The input has shape [N, C, ...].
///
/// In training, forward and backward each run one unnamed collective, so ranks must run their
/// modules in the same order. Evaluation is local. Gradients of weight and bias are this rank's
/// share; their sum over the ranks is the full gradient. A rank outside the process set normalizes
/// over its own batch. Forward throws InvalidArgument, on all ranks, if all batches together have
/// fewer than two values per channel.
///
///     kolo::SyncBatchNorm norm(64);
///     kolo::SyncBatchNorm norm(torch::nn::BatchNormOptions(64).momentum(0.01), set);
class SyncBatchNorm : public ::torch::nn::ModuleHolder<SyncBatchNormImpl> {
 public:
  using ::torch::nn::ModuleHolder<SyncBatchNormImpl>::ModuleHolder;
  using Impl = SyncBatchNormImpl;
};

/// Returns a Sequential of the same modules in the same order, with SyncBatchNorm in place of each
/// BatchNorm1d, 2d and 3d. Modules and parameters are shared with `model`; statistics are copied.
/// Throws InvalidArgument for a batch normalization inside a module that is not a Sequential: only
/// that module's own code can replace it.
[[nodiscard]] KOLO_EXPORT ::torch::nn::Sequential convert_sync_batchnorm(
    const ::torch::nn::Sequential& model, const ProcessSet& set = {});

template <size_t D, typename Other>
SyncBatchNormImpl::SyncBatchNormImpl(const ::torch::nn::BatchNormImplBase<D, Other>& other,
                                     ProcessSet set)
    : SyncBatchNormImpl(other.options, std::move(set)) {
  share(other.weight, other.bias);
  copy_statistics(other.running_mean, other.running_var, other.num_batches_tracked);
  this->train(other.is_training());
}

}  // namespace kolo
