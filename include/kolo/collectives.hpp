// Collective operations: every rank of a process set calls them, and all get the result.
//
// Each is safe to call from any thread. The synchronous form returns when the result is there and
// throws what went wrong; the asynchronous one returns a Future at once. An operation is matched
// with the other ranks' by its name, so ranks may submit named operations in different orders; the
// operations without a name are matched by their order in their process set, and one thread at a
// time may submit those.
//
// Memory given to an asynchronous call must live, untouched, until its future is done. Tensors with
// no elements, and no dimensions, are fine wherever nothing else is said.
//
// Errors of every operation here: NotInitialized; InvalidArgument (a wrong argument: nothing was
// submitted); DuplicateName (an operation of this name is pending in the set on this rank);
// Mismatch (the ranks disagree, or the operation is undefined once ranks have joined: nothing was
// changed, the session goes on); PeerLeft, Stalled, ShutDown, BackendError.
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

#include "kolo/export.hpp"
#include "kolo/future.hpp"
#include "kolo/process_set.hpp"
#include "kolo/tensor.hpp"
#include "kolo/types.hpp"

namespace kolo {

struct AllreduceOptions {
  std::string name{};  ///< Matches the operation across ranks; "" matches by order.
  ReduceOp op = ReduceOp::average;
  double prescale = 1.0;  ///< Each rank's elements are multiplied by this before they are combined.
  double postscale = 1.0;  ///< The result is multiplied by this.
  Compression compression = Compression::none;
  AverageOver average_over = AverageOver::all;
  ProcessSet process_set{};  ///< Who takes part.
};

struct GroupedAllreduceOptions {
  std::string name{};  ///< Of the group; "" matches by order.
  ReduceOp op = ReduceOp::average;
  double prescale = 1.0;  ///< Each rank's elements are multiplied by this before they are combined.
  double postscale = 1.0;  ///< The result is multiplied by this.
  Compression compression = Compression::none;
  AverageOver average_over = AverageOver::all;
  bool fuse_exactly = false;  ///< The group travels as one batch with nothing else in it.
  ProcessSet process_set{};   ///< Who takes part.
};

struct ReducescatterOptions {
  std::string name{};               ///< Matches the operation across ranks; "" matches by order.
  ReduceOp op = ReduceOp::average;  ///< Anything but adasum.
  double prescale = 1.0;  ///< Each rank's elements are multiplied by this before they are combined.
  double postscale = 1.0;  ///< The result is multiplied by this.
  Compression compression = Compression::none;
  ProcessSet process_set{};  ///< Who takes part.
};

struct AllgatherOptions {
  std::string name{};        ///< Matches the operation across ranks; "" matches by order.
  ProcessSet process_set{};  ///< Who takes part.
};

struct BroadcastOptions {
  std::string name{};        ///< Matches the operation across ranks; "" matches by order.
  ProcessSet process_set{};  ///< Who takes part.
};

struct AlltoallOptions {
  std::string name{};        ///< Matches the operation across ranks; "" matches by order.
  ProcessSet process_set{};  ///< Who takes part.
};

struct BarrierOptions {
  std::string name{};        ///< Matches the operation across ranks; "" matches by order.
  ProcessSet process_set{};  ///< Who takes part.
};

/// What the ranks of a set sent here: `counts[i]` elements from its i-th member, in this order.
/// Booleans are stored as bytes.
template <typename T>
struct Gathered {
  std::vector<std::conditional_t<std::same_as<T, bool>, std::uint8_t, T>> values;
  std::vector<std::int64_t> counts;
};

/// A type that may be given away to an operation and handed back by its future: an rvalue that owns
/// its elements, such as a `std::vector<float>`.
template <typename R>
concept OwningRange = !std::is_lvalue_reference_v<R> && !std::ranges::borrowed_range<R> &&
                      TensorRange<std::remove_reference_t<R>&>;

/// Numbers of rows: a range of integers of any type.
template <typename R>
concept CountRange = std::ranges::input_range<R> && std::integral<std::ranges::range_value_t<R>>;

namespace detail {

template <typename R>
using element_of = std::remove_cv_t<std::ranges::range_value_t<R>>;

/// How a vector stores elements of the type.
template <typename T>
using stored_as = std::conditional_t<std::same_as<T, bool>, std::uint8_t, T>;

}  // namespace detail

// ---- allreduce ----

/// Combines the ranks' tensors element by element; every rank gets the result, bit for bit the
/// same, in place. Shape, dtype and options must be alike on all ranks.
KOLO_EXPORT void allreduce(TensorView tensor, const AllreduceOptions& options = {});
KOLO_EXPORT Future<void> allreduce_async(TensorView tensor, const AllreduceOptions& options = {});

/// The same out of place. Both must have the same dtype, device and number of elements, and must
/// not overlap.
KOLO_EXPORT void allreduce(ConstTensorView input, TensorView output,
                           const AllreduceOptions& options = {});
KOLO_EXPORT Future<void> allreduce_async(ConstTensorView input, TensorView output,
                                         const AllreduceOptions& options = {});

/// As `allreduce_async`, on memory given away: the future hands it back.
template <OwningRange R>
Future<std::remove_cvref_t<R>> allreduce_async(R&& owned, const AllreduceOptions& options = {});

/// Several tensors as one operation: all of them are reduced, in one batch, or none. They may
/// differ in dtype; adasum is done tensor by tensor.
KOLO_EXPORT void grouped_allreduce(std::span<const TensorView> tensors,
                                   const GroupedAllreduceOptions& options = {});
KOLO_EXPORT void grouped_allreduce(std::initializer_list<TensorView> tensors,
                                   const GroupedAllreduceOptions& options = {});
KOLO_EXPORT Future<void> grouped_allreduce_async(std::span<const TensorView> tensors,
                                                 const GroupedAllreduceOptions& options = {});
KOLO_EXPORT Future<void> grouped_allreduce_async(std::initializer_list<TensorView> tensors,
                                                 const GroupedAllreduceOptions& options = {});

// ---- reducescatter ----

/// Combines the ranks' tensors, of which each rank gets some rows (see `reducescatter_rows`). Rows
/// are slices of the first dimension, in a range the elements; a scalar is refused. Shape, dtype
/// and options must be alike on all ranks. `output` holds this rank's rows. Not while a member of
/// the set has joined.
KOLO_EXPORT void reducescatter(ConstTensorView input, TensorView output,
                               const ReducescatterOptions& options = {});
KOLO_EXPORT Future<void> reducescatter_async(ConstTensorView input, TensorView output,
                                             const ReducescatterOptions& options = {});

/// The same of a range, into a new vector. Booleans come as bytes.
template <ConstTensorRange R>
[[nodiscard]] std::vector<detail::stored_as<detail::element_of<R>>> reducescatter(
    R&& range, const ReducescatterOptions& options = {});
template <ConstTensorRange R>
Future<std::vector<detail::stored_as<detail::element_of<R>>>> reducescatter_async(
    R&& range, const ReducescatterOptions& options = {});

/// Several as one operation, all or none. `outputs[i]` holds this rank's rows of `inputs[i]`.
KOLO_EXPORT void grouped_reducescatter(std::span<const ConstTensorView> inputs,
                                       std::span<const TensorView> outputs,
                                       const ReducescatterOptions& options = {});
KOLO_EXPORT Future<void> grouped_reducescatter_async(std::span<const ConstTensorView> inputs,
                                                     std::span<const TensorView> outputs,
                                                     const ReducescatterOptions& options = {});

// ---- allgather ----

/// Every rank gets the tensors of all, one after the other in the order of the ranks. The first
/// dimension may differ between ranks, the others and the dtype may not; a scalar counts as one
/// row. `allocate` is told the rows of each and returns memory for all of them. A rank that has
/// joined has no rows. Returns the rows of each.
template <std::convertible_to<Allocator> A>
std::vector<std::int64_t> allgather(ConstTensorView tensor, A allocate,
                                    const AllgatherOptions& options = {});
template <std::convertible_to<Allocator> A>
Future<std::vector<std::int64_t>> allgather_async(ConstTensorView tensor, A allocate,
                                                  const AllgatherOptions& options = {});

/// The same of a range; its length may differ between ranks.
template <ConstTensorRange R>
[[nodiscard]] Gathered<detail::element_of<R>> allgather(R&& range,
                                                        const AllgatherOptions& options = {});
template <ConstTensorRange R>
Future<Gathered<detail::element_of<R>>> allgather_async(R&& range,
                                                        const AllgatherOptions& options = {});

/// Texts, of any length. A rank that has joined gives "".
[[nodiscard]] KOLO_EXPORT std::vector<std::string> allgather(const std::string& text,
                                                             const AllgatherOptions& options = {});

/// Several as one operation, all or none: `allocators[i]` gives memory for the rows of
/// `tensors[i]`. Returns the rows of each rank, tensor by tensor.
KOLO_EXPORT std::vector<std::vector<std::int64_t>> grouped_allgather(
    std::span<const ConstTensorView> tensors, std::span<const Allocator> allocators,
    const AllgatherOptions& options = {});
KOLO_EXPORT Future<std::vector<std::vector<std::int64_t>>> grouped_allgather_async(
    std::span<const ConstTensorView> tensors, std::span<const Allocator> allocators,
    const AllgatherOptions& options = {});

/// The same of vectors of one type.
template <Element T>
[[nodiscard]] std::vector<Gathered<T>> grouped_allgather(std::span<const std::vector<T>> ranges,
                                                         const AllgatherOptions& options = {});

// ---- broadcast ----

/// Every rank's tensor becomes a copy of `root`'s. `root` is a rank of the world and a member of
/// the set, and has not joined. Shape and dtype must be alike.
KOLO_EXPORT void broadcast(TensorView tensor, int root, const BroadcastOptions& options = {});
KOLO_EXPORT Future<void> broadcast_async(TensorView tensor, int root,
                                         const BroadcastOptions& options = {});

/// The same out of place: `input` counts on the root only, where it is copied to `output` too.
KOLO_EXPORT void broadcast(ConstTensorView input, TensorView output, int root,
                           const BroadcastOptions& options = {});
KOLO_EXPORT Future<void> broadcast_async(ConstTensorView input, TensorView output, int root,
                                         const BroadcastOptions& options = {});

/// The same for text of any length: the other ranks' strings are resized.
KOLO_EXPORT void broadcast(std::string& text, int root, const BroadcastOptions& options = {});
KOLO_EXPORT Future<void> broadcast_async(std::string& text, int root,
                                         const BroadcastOptions& options = {});

// ---- alltoall ----

/// Sends `counts[i]` rows to the i-th member of the set, one after the other; every rank gets what
/// was sent to it, in the order of the senders. Counts may be zero and add up to the rows of the
/// tensor. `allocate` is told the rows from each. Returns the rows from each. A scalar is refused.
/// Not while a member of the set has joined.
KOLO_EXPORT std::vector<std::int64_t> alltoall(ConstTensorView tensor,
                                               std::span<const std::int64_t> counts,
                                               Allocator allocate,
                                               const AlltoallOptions& options = {});
KOLO_EXPORT Future<std::vector<std::int64_t>> alltoall_async(ConstTensorView tensor,
                                                             std::span<const std::int64_t> counts,
                                                             Allocator allocate,
                                                             const AlltoallOptions& options = {});

/// The same of a range, whose elements are the rows.
template <ConstTensorRange R, CountRange Counts>
[[nodiscard]] Gathered<detail::element_of<R>> alltoall(R&& range, const Counts& counts,
                                                       const AlltoallOptions& options = {});
template <ConstTensorRange R, CountRange Counts>
Future<Gathered<detail::element_of<R>>> alltoall_async(R&& range, const Counts& counts,
                                                       const AlltoallOptions& options = {});

/// The same with equal counts; the length must be a multiple of the number of members.
template <ConstTensorRange R>
[[nodiscard]] Gathered<detail::element_of<R>> alltoall(R&& range,
                                                       const AlltoallOptions& options = {});
template <ConstTensorRange R>
Future<Gathered<detail::element_of<R>>> alltoall_async(R&& range,
                                                       const AlltoallOptions& options = {});

// ---- barrier and join ----

/// Returns when every member of the set has called it.
KOLO_EXPORT void barrier(const BarrierOptions& options = {});
KOLO_EXPORT void barrier(const ProcessSet& set);
KOLO_EXPORT Future<void> barrier_async(const BarrierOptions& options = {});

/// This rank has no more data: until all ranks have joined, it counts as present in whatever the
/// others submit, and takes no part in it. Reductions combine the tensors of the others, an
/// allgather gets no rows from it; an operation that is undefined without it (a broadcast from it,
/// alltoall, reducescatter) fails with Mismatch on those that submitted it. What this rank
/// submitted before is still done. Of the world, and of all sets. Returns the rank that was the
/// last to join, the same on all.
///
/// Until then this rank may submit nothing: InvalidArgument. Afterwards operations without a name
/// are counted from the start again.
KOLO_EXPORT int join();
KOLO_EXPORT Future<int> join_async();

}  // namespace kolo

#include "kolo/detail/collectives.hpp"
