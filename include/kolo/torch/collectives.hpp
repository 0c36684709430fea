// Collectives on LibTorch's tensors. Each does what the one of the same name does on memory, with
// the same errors (`kolo/collectives.hpp`); rows are slices of the first dimension.
//
// As in LibTorch, an underscore means in place. The others return a new tensor in row-major order.
// Tensors are dense, of a type that Kolo has, and may have any strides unless something else is
// said.
//
// The synchronous out-of-place forms are recorded by autograd when their input requires a gradient,
// which must be so on all ranks or on none: their backward is a collective too, named after the
// forward one with ".backward" behind it. The gradient is that of the sum of the ranks' losses:
// what a rank's input did to the results of others comes back to it. In place and asynchronous
// forms are not recorded.
//
// Asynchronous forms keep the tensors alive that they work on; nobody may change these before the
// future is done.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/export.hpp"

namespace kolo {

// ---- allreduce ----

/// Gradient: the same allreduce of the gradients. Only of average and sum: backward through another
/// `op` throws InvalidArgument.
[[nodiscard]] KOLO_EXPORT ::torch::Tensor allreduce(const ::torch::Tensor& tensor,
                                                    const AllreduceOptions& options = {});
KOLO_EXPORT Future<::torch::Tensor> allreduce_async(const ::torch::Tensor& tensor,
                                                    const AllreduceOptions& options = {});
KOLO_EXPORT void allreduce_(::torch::Tensor& tensor, const AllreduceOptions& options = {});
/// The future gives the same tensor. Its elements must lie in memory without gaps, in an order that
/// is the same on all ranks.
KOLO_EXPORT Future<::torch::Tensor> allreduce_async_(const ::torch::Tensor& tensor,
                                                     const AllreduceOptions& options = {});

/// Several tensors as one operation: all or none. Gradient as `allreduce`, tensor by tensor.
[[nodiscard]] KOLO_EXPORT std::vector<::torch::Tensor> grouped_allreduce(
    const std::vector<::torch::Tensor>& tensors, const GroupedAllreduceOptions& options = {});
KOLO_EXPORT Future<std::vector<::torch::Tensor>> grouped_allreduce_async(
    const std::vector<::torch::Tensor>& tensors, const GroupedAllreduceOptions& options = {});
KOLO_EXPORT void grouped_allreduce_(const std::vector<::torch::Tensor>& tensors,
                                    const GroupedAllreduceOptions& options = {});
/// As `allreduce_async_`.
KOLO_EXPORT Future<std::vector<::torch::Tensor>> grouped_allreduce_async_(
    const std::vector<::torch::Tensor>& tensors, const GroupedAllreduceOptions& options = {});

// ---- allgather ----

/// The ranks' rows, one rank's after the other's; the first dimension may differ between ranks. A
/// scalar counts as one row. Gradient: that of this rank's rows, summed over the ranks.
[[nodiscard]] KOLO_EXPORT ::torch::Tensor allgather(const ::torch::Tensor& tensor,
                                                    const AllgatherOptions& options = {});
KOLO_EXPORT Future<::torch::Tensor> allgather_async(const ::torch::Tensor& tensor,
                                                    const AllgatherOptions& options = {});

/// Several tensors as one operation: all or none. They may differ in type, shape and number of
/// rows. Gradient as `allgather`, tensor by tensor.
[[nodiscard]] KOLO_EXPORT std::vector<::torch::Tensor> grouped_allgather(
    const std::vector<::torch::Tensor>& tensors, const AllgatherOptions& options = {});
KOLO_EXPORT Future<std::vector<::torch::Tensor>> grouped_allgather_async(
    const std::vector<::torch::Tensor>& tensors, const AllgatherOptions& options = {});

// ---- broadcast ----

/// `root`'s tensor. Gradient: on the root the sum of all ranks', elsewhere zeros.
[[nodiscard]] KOLO_EXPORT ::torch::Tensor broadcast(const ::torch::Tensor& tensor, int root,
                                                    const BroadcastOptions& options = {});
KOLO_EXPORT Future<::torch::Tensor> broadcast_async(const ::torch::Tensor& tensor, int root,
                                                    const BroadcastOptions& options = {});
KOLO_EXPORT void broadcast_(::torch::Tensor& tensor, int root,
                            const BroadcastOptions& options = {});
/// As `allreduce_async_`.
KOLO_EXPORT Future<::torch::Tensor> broadcast_async_(const ::torch::Tensor& tensor, int root,
                                                     const BroadcastOptions& options = {});

// ---- alltoall ----

/// What the members of the set sent to this rank.
struct Received {
  ::torch::Tensor output;
  std::vector<std::int64_t> splits;  ///< Rows from each member, in their order in `output`.
};

/// Sends `splits[i]` rows to the i-th member of the set. Gradient: each row's goes back to where
/// the row came from.
[[nodiscard]] KOLO_EXPORT Received alltoall(const ::torch::Tensor& tensor,
                                            const std::vector<std::int64_t>& splits,
                                            const AlltoallOptions& options = {});
KOLO_EXPORT Future<Received> alltoall_async(const ::torch::Tensor& tensor,
                                            const std::vector<std::int64_t>& splits,
                                            const AlltoallOptions& options = {});
/// The same with equal splits: the number of rows must be a multiple of the number of members.
[[nodiscard]] KOLO_EXPORT Received alltoall(const ::torch::Tensor& tensor,
                                            const AlltoallOptions& options = {});
KOLO_EXPORT Future<Received> alltoall_async(const ::torch::Tensor& tensor,
                                            const AlltoallOptions& options = {});

// ---- reducescatter ----

/// This rank's rows of the reduced tensor (see `reducescatter_rows`). Gradient: the ranks'
/// gathered, scaled as the forward operation is; only of average and sum.
[[nodiscard]] KOLO_EXPORT ::torch::Tensor reducescatter(const ::torch::Tensor& tensor,
                                                        const ReducescatterOptions& options = {});
/// The result keeps the input's memory alive as long as its own.
KOLO_EXPORT Future<::torch::Tensor> reducescatter_async(const ::torch::Tensor& tensor,
                                                        const ReducescatterOptions& options = {});

/// Several tensors as one operation: all or none. They may differ in type, shape and number of
/// rows. Gradient as `reducescatter`, tensor by tensor.
[[nodiscard]] KOLO_EXPORT std::vector<::torch::Tensor> grouped_reducescatter(
    const std::vector<::torch::Tensor>& tensors, const ReducescatterOptions& options = {});
/// As `reducescatter_async`.
KOLO_EXPORT Future<std::vector<::torch::Tensor>> grouped_reducescatter_async(
    const std::vector<::torch::Tensor>& tensors, const ReducescatterOptions& options = {});

}  // namespace kolo
