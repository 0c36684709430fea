// Collective operations: every rank of the session calls them, and all get the result.
//
// Each is safe to call from any thread. The synchronous form returns when the result is there and
// throws what went wrong; the asynchronous one returns a Future at once. An operation is matched
// with the other ranks' by its name, so ranks may submit named operations in different orders; the
// operations without a name are matched by their order, and one thread at a time may submit those.
//
// Errors of every operation here: NotInitialized; InvalidArgument (a wrong argument: nothing was
// submitted); DuplicateName (an operation of this name is pending on this rank); Mismatch (the
// ranks disagree: nothing was changed, the session goes on); PeerLeft, Stalled, ShutDown,
// BackendError.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "kolo/future.hpp"
#include "kolo/tensor.hpp"

namespace kolo {

/// How elements are combined. An average is the sum divided by the number of ranks; of integers it
/// is divided in 64 bits and truncated toward zero. Integer sums wrap as their type does.
enum class ReduceOp : std::uint8_t { average, sum };

/// What travels. `none`: the tensor's own type.
enum class Compression : std::uint8_t { none };

struct AllreduceOptions {
  std::string name{};  ///< Matches the operation across ranks; "" matches by order.
  ReduceOp op = ReduceOp::average;
  double prescale = 1.0;   ///< Each rank's elements are multiplied by this before they are summed.
  double postscale = 1.0;  ///< The result is multiplied by this.
};

struct BroadcastOptions {
  std::string name{};  ///< Matches the operation across ranks; "" matches by order.
};

struct BarrierOptions {
  std::string name{};  ///< Matches the operation across ranks; "" matches by order.
};

/// A type that may be given away to an operation and handed back by its future: an rvalue that owns
/// its elements, such as a `std::vector<float>`.
template <typename R>
concept OwningRange = !std::is_lvalue_reference_v<R> && !std::ranges::borrowed_range<R> &&
                      TensorRange<std::remove_reference_t<R>&>;

/// Combines the ranks' tensors element by element; every rank gets the result, bit for bit the
/// same, in place. Shape, dtype and options must be alike on all ranks. f16 and bf16 are summed in
/// f32 and rounded once. Booleans have no sum: InvalidArgument.
void allreduce(TensorView tensor, const AllreduceOptions& options = {});

/// As `allreduce`. The tensor's memory must live, untouched, until the future is done.
Future<void> allreduce_async(TensorView tensor, const AllreduceOptions& options = {});

/// As `allreduce_async`, on memory given away: the future hands it back.
template <OwningRange R>
Future<std::remove_cvref_t<R>> allreduce_async(R&& owned, const AllreduceOptions& options = {});

/// Every rank's tensor becomes a copy of `root`'s. `root` is a rank. Shape and dtype must be alike.
void broadcast(TensorView tensor, int root, const BroadcastOptions& options = {});

/// The same for text of any length: the other ranks' strings are resized.
void broadcast(std::string& text, int root, const BroadcastOptions& options = {});

/// As `broadcast`. The memory must live, untouched, until the future is done.
Future<void> broadcast_async(TensorView tensor, int root, const BroadcastOptions& options = {});
Future<void> broadcast_async(std::string& text, int root, const BroadcastOptions& options = {});

/// Returns when every rank has called it.
void barrier(const BarrierOptions& options = {});
Future<void> barrier_async(const BarrierOptions& options = {});

namespace detail {

/// `step` is part of what must match: an optimizer gives the number of its step.
std::shared_ptr<Operation> submit_allreduce(TensorView tensor, const AllreduceOptions& options,
                                            std::int64_t step = 0);

}  // namespace detail

template <OwningRange R>
Future<std::remove_cvref_t<R>> allreduce_async(R&& owned, const AllreduceOptions& options) {
  auto value = std::make_unique<std::remove_cvref_t<R>>(std::forward<R>(owned));
  auto operation = detail::submit_allreduce(TensorView(*value), options);
  return {std::move(operation), std::move(value)};
}

}  // namespace kolo
