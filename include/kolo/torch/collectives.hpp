// SPDX-License-Identifier: Apache-2.0
// Collectives on LibTorch tensors. Each behaves as the collective of the same name in
// `kolo/collectives.hpp`, with the same errors. Rows are slices of the first dimension.
//
// As in LibTorch, functions with a trailing underscore work in place. The others return a new
// tensor in row-major order. Tensors must be dense and of a dtype that Kolo supports; they may have
// any strides unless stated otherwise.
//
// Autograd records the synchronous out-of-place forms if their input requires a gradient. The input
// must require one on all ranks or on none, because backward is a collective too. Its name is the
// forward operation's name with the suffix ".backward". The gradient is that of the sum of all
// ranks' losses, so it includes the effect of a rank's input on other ranks' results. In-place and
// asynchronous forms are not recorded.
//
// Asynchronous forms keep their tensors alive. Do not change the tensors before the future is done.
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

/// Reduces a tensor over the ranks. Gradient: the same allreduce of the gradients, for average and
/// sum only. Backward through another `op` throws InvalidArgument.
[[nodiscard]] KOLO_EXPORT ::torch::Tensor allreduce(const ::torch::Tensor& tensor,
                                                    const AllreduceOptions& options = {});
KOLO_EXPORT Future<::torch::Tensor> allreduce_async(const ::torch::Tensor& tensor,
                                                    const AllreduceOptions& options = {});
/// As in LibTorch, a const tensor can be changed: `allreduce_(parameter.grad())`.
KOLO_EXPORT void allreduce_(const ::torch::Tensor& tensor, const AllreduceOptions& options = {});
/// Reduces in place; the future returns `tensor`. The elements of `tensor` must be in memory
/// without gaps, and in the same order on all ranks.
KOLO_EXPORT Future<::torch::Tensor> allreduce_async_(const ::torch::Tensor& tensor,
                                                     const AllreduceOptions& options = {});

/// Reduces several tensors as one operation: all or none. Each tensor has the gradient of
/// `allreduce`.
[[nodiscard]] KOLO_EXPORT std::vector<::torch::Tensor> grouped_allreduce(
    const std::vector<::torch::Tensor>& tensors, const GroupedAllreduceOptions& options = {});
KOLO_EXPORT Future<std::vector<::torch::Tensor>> grouped_allreduce_async(
    const std::vector<::torch::Tensor>& tensors, const GroupedAllreduceOptions& options = {});
KOLO_EXPORT void grouped_allreduce_(const std::vector<::torch::Tensor>& tensors,
                                    const GroupedAllreduceOptions& options = {});
/// Reduces in place, with the requirements of `allreduce_async_`.
KOLO_EXPORT Future<std::vector<::torch::Tensor>> grouped_allreduce_async_(
    const std::vector<::torch::Tensor>& tensors, const GroupedAllreduceOptions& options = {});

// ---- allgather ----

/// Returns the rows of all ranks, in rank order. The first dimension may differ between ranks; a
/// scalar counts as one row. Gradient: the sum, over all ranks, of the gradients of this rank's
/// rows.
[[nodiscard]] KOLO_EXPORT ::torch::Tensor allgather(const ::torch::Tensor& tensor,
                                                    const AllgatherOptions& options = {});
KOLO_EXPORT Future<::torch::Tensor> allgather_async(const ::torch::Tensor& tensor,
                                                    const AllgatherOptions& options = {});

/// Gathers several tensors as one operation: all or none. The tensors may differ in dtype, shape
/// and number of rows. Each tensor has the gradient of `allgather`.
[[nodiscard]] KOLO_EXPORT std::vector<::torch::Tensor> grouped_allgather(
    const std::vector<::torch::Tensor>& tensors, const AllgatherOptions& options = {});
KOLO_EXPORT Future<std::vector<::torch::Tensor>> grouped_allgather_async(
    const std::vector<::torch::Tensor>& tensors, const AllgatherOptions& options = {});

// ---- broadcast ----

/// Returns `root`'s tensor. Gradient: the sum of all ranks' gradients on the root, zeros elsewhere.
[[nodiscard]] KOLO_EXPORT ::torch::Tensor broadcast(const ::torch::Tensor& tensor, int root,
                                                    const BroadcastOptions& options = {});
KOLO_EXPORT Future<::torch::Tensor> broadcast_async(const ::torch::Tensor& tensor, int root,
                                                    const BroadcastOptions& options = {});
KOLO_EXPORT void broadcast_(const ::torch::Tensor& tensor, int root,
                            const BroadcastOptions& options = {});
/// Broadcasts in place, with the requirements of `allreduce_async_`.
KOLO_EXPORT Future<::torch::Tensor> broadcast_async_(const ::torch::Tensor& tensor, int root,
                                                     const BroadcastOptions& options = {});

// ---- alltoall ----

/// The rows that the members of the set sent to this rank.
struct Received {
  ::torch::Tensor output;
  std::vector<std::int64_t> splits;  ///< Number of rows from each member, in order.
};

/// Sends `splits[i]` rows to the i-th member of the set. Gradient: each row's gradient returns to
/// the row's sender.
[[nodiscard]] KOLO_EXPORT Received alltoall(const ::torch::Tensor& tensor,
                                            const std::vector<std::int64_t>& splits,
                                            const AlltoallOptions& options = {});
KOLO_EXPORT Future<Received> alltoall_async(const ::torch::Tensor& tensor,
                                            const std::vector<std::int64_t>& splits,
                                            const AlltoallOptions& options = {});
/// Sends the same number of rows to each member; the number of rows of `tensor` must be a multiple
/// of the number of members.
[[nodiscard]] KOLO_EXPORT Received alltoall(const ::torch::Tensor& tensor,
                                            const AlltoallOptions& options = {});
KOLO_EXPORT Future<Received> alltoall_async(const ::torch::Tensor& tensor,
                                            const AlltoallOptions& options = {});

// ---- reducescatter ----

/// Returns this rank's rows of the reduced tensor (see `reducescatter_rows`). Gradient, for average
/// and sum only: the gathered gradients of all ranks, scaled as in forward.
[[nodiscard]] KOLO_EXPORT ::torch::Tensor reducescatter(const ::torch::Tensor& tensor,
                                                        const ReducescatterOptions& options = {});
/// The returned tensor keeps the memory of `tensor` alive.
KOLO_EXPORT Future<::torch::Tensor> reducescatter_async(const ::torch::Tensor& tensor,
                                                        const ReducescatterOptions& options = {});

/// Reduces and scatters several tensors as one operation: all or none. The tensors may differ in
/// dtype, shape and number of rows. Each tensor has the gradient of `reducescatter`.
[[nodiscard]] KOLO_EXPORT std::vector<::torch::Tensor> grouped_reducescatter(
    const std::vector<::torch::Tensor>& tensors, const ReducescatterOptions& options = {});
/// The returned tensors keep the memory of `tensors` alive.
KOLO_EXPORT Future<std::vector<::torch::Tensor>> grouped_reducescatter_async(
    const std::vector<::torch::Tensor>& tensors, const ReducescatterOptions& options = {});

}  // namespace kolo
