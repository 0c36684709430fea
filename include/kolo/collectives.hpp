// SPDX-License-Identifier: Apache-2.0
// Collective operations: every rank of a process set calls them.
//
// All functions are thread-safe. A synchronous call returns when the operation is done and throws
// its error; an asynchronous call returns a Future at once. Operations are matched across ranks by
// name, so ranks may submit named operations in any order. Operations without a name are matched by
// the order of their submission to the process set; only one thread at a time may have such
// operations pending in a set.
//
// Memory passed to a call must stay alive and otherwise unused until the operation is done. Empty
// tensors and scalars are allowed unless stated otherwise.
//
// Every operation can throw
// - NotInitialized: there is no session;
// - InvalidArgument: an argument is wrong; nothing was submitted;
// - DuplicateName: an operation of this name is pending in the set on this rank;
// - Mismatch: the ranks disagree, or the operation is undefined once ranks have joined; tensors are
//   unchanged, and the session stays usable;
// - PeerLeft, Stalled, ShutDown, BackendError: see kolo/error.hpp.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kolo/collective_options.hpp"
#include "kolo/export.hpp"
#include "kolo/future.hpp"
#include "kolo/process_set.hpp"
#include "kolo/tensor.hpp"
#include "kolo/types.hpp"

namespace kolo {

/// Elements received from the members of a set: `counts[i]` from the i-th member, in this order.
/// Booleans are stored as bytes.
template <typename T>
struct Gathered {
  std::vector<std::conditional_t<std::same_as<T, bool>, std::uint8_t, T>> values;
  std::vector<std::int64_t> counts;
};

/// A range that can be moved into an operation and that the future returns: an rvalue that owns its
/// elements, such as a `std::vector<float>`.
template <typename R>
concept OwningRange = !std::is_lvalue_reference_v<R> && !std::ranges::borrowed_range<R> &&
                      TensorRange<std::remove_reference_t<R>&>;

/// A range of integers of any type, each a number of rows.
template <typename R>
concept CountRange = std::ranges::input_range<R> && std::integral<std::ranges::range_value_t<R>>;

namespace detail {

template <typename R>
using element_of = std::remove_cv_t<std::ranges::range_value_t<R>>;

/// The type in which a vector stores elements of type `T`.
template <typename T>
using stored_as = std::conditional_t<std::same_as<T, bool>, std::uint8_t, T>;

}  // namespace detail

// ---- allreduce ----

/// Reduces the ranks' tensors element by element, in place. Every rank gets the same bits. Shape,
/// dtype and options must be equal on all ranks.
KOLO_EXPORT void allreduce(TensorView tensor, const AllreduceOptions& options = {});
KOLO_EXPORT Future<void> allreduce_async(TensorView tensor, const AllreduceOptions& options = {});

/// Reduces out of place. `input` and `output` must have the same dtype, device and number of
/// elements, and must not overlap.
KOLO_EXPORT void allreduce(ConstTensorView input, TensorView output,
                           const AllreduceOptions& options = {});
KOLO_EXPORT Future<void> allreduce_async(ConstTensorView input, TensorView output,
                                         const AllreduceOptions& options = {});

/// Moves `owned` into the operation. The future returns `owned`, which then holds the result.
template <OwningRange R>
Future<std::remove_cvref_t<R>> allreduce_async(R&& owned, const AllreduceOptions& options = {});

/// Reduces several tensors in place, as one operation in one batch: all succeed or none does. Their
/// dtypes may differ, but their memory must not overlap. Adasum treats each tensor separately.
KOLO_EXPORT void grouped_allreduce(std::span<const TensorView> tensors,
                                   const GroupedAllreduceOptions& options = {});
KOLO_EXPORT void grouped_allreduce(std::initializer_list<TensorView> tensors,
                                   const GroupedAllreduceOptions& options = {});
KOLO_EXPORT Future<void> grouped_allreduce_async(std::span<const TensorView> tensors,
                                                 const GroupedAllreduceOptions& options = {});
KOLO_EXPORT Future<void> grouped_allreduce_async(std::initializer_list<TensorView> tensors,
                                                 const GroupedAllreduceOptions& options = {});

// ---- reducescatter ----

/// Reduces the ranks' tensors and gives each rank its rows of the result (see
/// `reducescatter_rows`). Rows are slices along the first dimension; the rows of a range are its
/// elements. `output` receives this rank's rows, and may be the same rows of `input`. Shape, dtype
/// and options must be equal on all ranks. Throws InvalidArgument for a scalar, and Mismatch if a
/// member of the set has joined.
KOLO_EXPORT void reducescatter(ConstTensorView input, TensorView output,
                               const ReducescatterOptions& options = {});
KOLO_EXPORT Future<void> reducescatter_async(ConstTensorView input, TensorView output,
                                             const ReducescatterOptions& options = {});

/// Reduces and scatters a range. Returns this rank's rows in a new vector, booleans as bytes.
template <ReadableRange R>
[[nodiscard]] std::vector<detail::stored_as<detail::element_of<R>>> reducescatter(
    R&& range, const ReducescatterOptions& options = {});
template <ConstTensorRange R>
Future<std::vector<detail::stored_as<detail::element_of<R>>>> reducescatter_async(
    R&& range, const ReducescatterOptions& options = {});

/// Reduces and scatters several tensors as one operation: all or none. `outputs[i]` receives this
/// rank's rows of `inputs[i]`. It may be these rows of `inputs[i]`, and must not overlap any
/// other input or output.
KOLO_EXPORT void grouped_reducescatter(std::span<const ConstTensorView> inputs,
                                       std::span<const TensorView> outputs,
                                       const ReducescatterOptions& options = {});
KOLO_EXPORT Future<void> grouped_reducescatter_async(std::span<const ConstTensorView> inputs,
                                                     std::span<const TensorView> outputs,
                                                     const ReducescatterOptions& options = {});

// ---- allgather ----

/// Gathers the tensors of all ranks on every rank, concatenated along the first dimension in the
/// order of the ranks. The first dimension may differ between ranks; the other dimensions and the
/// dtype may not. A scalar counts as one row, and a rank that has joined contributes none.
/// `allocate` receives the number of rows of each rank and returns memory for all rows; `tensor`
/// may already lie in that memory, where this rank's rows belong. Returns the numbers of rows.
template <std::convertible_to<Allocator> A>
std::vector<std::int64_t> allgather(ConstTensorView tensor, A allocate,
                                    const AllgatherOptions& options = {});
template <std::convertible_to<Allocator> A>
Future<std::vector<std::int64_t>> allgather_async(ConstTensorView tensor, A allocate,
                                                  const AllgatherOptions& options = {});

/// Gathers ranges, whose lengths may differ between ranks.
template <ReadableRange R>
[[nodiscard]] Gathered<detail::element_of<R>> allgather(R&& range,
                                                        const AllgatherOptions& options = {});
template <ConstTensorRange R>
Future<Gathered<detail::element_of<R>>> allgather_async(R&& range,
                                                        const AllgatherOptions& options = {});

/// Gathers strings of any length, in the order of the ranks. A rank that has joined contributes "".
[[nodiscard]] KOLO_EXPORT std::vector<std::string> allgather(const std::string& text,
                                                             const AllgatherOptions& options = {});

/// Gathers several tensors as one operation: all or none. `allocators[i]` returns memory for the
/// rows of `tensors[i]`. Returns, for each tensor, the number of rows of each rank.
KOLO_EXPORT std::vector<std::vector<std::int64_t>> grouped_allgather(
    std::span<const ConstTensorView> tensors, std::span<const Allocator> allocators,
    const AllgatherOptions& options = {});
KOLO_EXPORT Future<std::vector<std::vector<std::int64_t>>> grouped_allgather_async(
    std::span<const ConstTensorView> tensors, std::span<const Allocator> allocators,
    const AllgatherOptions& options = {});

/// Gathers several vectors of one element type.
template <Element T>
[[nodiscard]] std::vector<Gathered<T>> grouped_allgather(std::span<const std::vector<T>> ranges,
                                                         const AllgatherOptions& options = {});

// ---- broadcast ----

/// Copies `root`'s tensor to every rank. `root` is the world rank of a member of the set that has
/// not joined. Shape, dtype and root must be equal on all ranks.
KOLO_EXPORT void broadcast(TensorView tensor, int root, const BroadcastOptions& options = {});
KOLO_EXPORT Future<void> broadcast_async(TensorView tensor, int root,
                                         const BroadcastOptions& options = {});

/// Broadcasts out of place: every rank, the root included, receives the root's `input` in `output`.
/// The contents of `input` on other ranks are ignored.
KOLO_EXPORT void broadcast(ConstTensorView input, TensorView output, int root,
                           const BroadcastOptions& options = {});
KOLO_EXPORT Future<void> broadcast_async(ConstTensorView input, TensorView output, int root,
                                         const BroadcastOptions& options = {});

/// Broadcasts a string of any length, and resizes the strings on the other ranks.
KOLO_EXPORT void broadcast(std::string& text, int root, const BroadcastOptions& options = {});
KOLO_EXPORT Future<void> broadcast_async(std::string& text, int root,
                                         const BroadcastOptions& options = {});

// ---- alltoall ----

/// Sends consecutive rows of the tensor to the members of the set, `counts[i]` rows to the i-th,
/// and receives the rows that the members send to this rank, in the order of the members. Counts
/// may be zero; their sum must be the tensor's number of rows. `allocate` receives the number of
/// rows from each member and returns memory for all of them. Returns these numbers of rows.
/// Throws InvalidArgument for a scalar, and Mismatch if a member of the set has joined.
template <std::convertible_to<Allocator> A>
std::vector<std::int64_t> alltoall(ConstTensorView tensor, std::span<const std::int64_t> counts,
                                   A allocate, const AlltoallOptions& options = {});
template <std::convertible_to<Allocator> A>
Future<std::vector<std::int64_t>> alltoall_async(ConstTensorView tensor,
                                                 std::span<const std::int64_t> counts, A allocate,
                                                 const AlltoallOptions& options = {});

/// Exchanges the elements of a range. Each element is one row.
template <ReadableRange R, CountRange Counts>
[[nodiscard]] Gathered<detail::element_of<R>> alltoall(R&& range, const Counts& counts,
                                                       const AlltoallOptions& options = {});
template <ConstTensorRange R, CountRange Counts>
Future<Gathered<detail::element_of<R>>> alltoall_async(R&& range, const Counts& counts,
                                                       const AlltoallOptions& options = {});

/// Exchanges a range with equal counts. Its length must be a multiple of the number of members.
template <ReadableRange R>
[[nodiscard]] Gathered<detail::element_of<R>> alltoall(R&& range,
                                                       const AlltoallOptions& options = {});
template <ConstTensorRange R>
Future<Gathered<detail::element_of<R>>> alltoall_async(R&& range,
                                                       const AlltoallOptions& options = {});

// ---- barrier and join ----

/// Waits until every member of the set has called `barrier`.
KOLO_EXPORT void barrier(const BarrierOptions& options = {});
KOLO_EXPORT void barrier(const ProcessSet& set);
KOLO_EXPORT Future<void> barrier_async(const BarrierOptions& options = {});

/// Declares that this rank has no more data, and waits for every rank to join. Meanwhile, the
/// other ranks' operations, in the world and in all sets, complete without this rank: reductions
/// combine the tensors of the others, and an allgather returns no rows from this rank. Operations
/// that are undefined without this rank (a broadcast from it, alltoall, reducescatter) fail with
/// Mismatch. Operations that this rank submitted before the call complete as usual. Returns the
/// last rank to join, the same on all ranks.
///
/// Until the join completes, submitting an operation on this rank throws InvalidArgument.
/// Afterwards, operations without a name are numbered from the start again.
KOLO_EXPORT int join();
KOLO_EXPORT Future<int> join_async();

}  // namespace kolo

#include "kolo/detail/collectives.hpp"
