// SPDX-License-Identifier: Apache-2.0
// The entry to the session that all collectives share, and the collectives that are templates.
// Included by kolo/collectives.hpp.
#pragma once

#include "kolo/collectives.hpp"
#include "kolo/export.hpp"

namespace kolo {

namespace detail {

// The arguments of each collective. Their references need to be valid only until `submit` returns,
// unless stated otherwise.

/// `step` must be equal on all ranks: an optimizer passes the number of its current step.
struct AllreduceCall {
  const ConstTensorView& input;
  const TensorView& output;
  const AllreduceOptions& options;
  std::int64_t step = 0;
};

/// Reduces in place.
struct GroupedAllreduceCall {
  std::span<const TensorView> tensors;
  const GroupedAllreduceOptions& options;
  std::int64_t step = 0;
};

/// Holds one tensor or a group, like AllgatherCall.
struct ReducescatterCall {
  std::span<const ConstTensorView> inputs;
  std::span<const TensorView> outputs;
  const ReducescatterOptions& options;
  std::int64_t step = 0;
};

struct AllgatherCall {
  std::span<const ConstTensorView> tensors;
  std::span<const Allocator> allocators;
  const AllgatherOptions& options;
};

struct BroadcastCall {
  const ConstTensorView& input;
  const TensorView& output;
  int root;
  const BroadcastOptions& options;
};

/// `text` must outlive the operation.
struct StringBroadcastCall {
  std::string& text;
  int root;
  const BroadcastOptions& options;
};

/// `counts` is null if every rank gets the same number of rows.
struct AlltoallCall {
  const ConstTensorView& tensor;
  const std::vector<std::int64_t>* counts;
  const Allocator& allocate;
  const AlltoallOptions& options;
};

struct BarrierCall {
  const BarrierOptions& options;
};

/// `last_rank` must outlive the operation.
struct JoinCall {
  int& last_rank;
};

/// Checks the arguments and submits the operation. `waits` says that the caller waits for the
/// operation at once. Throws as the collective does.
KOLO_EXPORT std::shared_ptr<Operation> submit(const AllreduceCall& call, bool waits);
KOLO_EXPORT std::shared_ptr<Operation> submit(const GroupedAllreduceCall& call, bool waits);
KOLO_EXPORT std::shared_ptr<Operation> submit(const ReducescatterCall& call, bool waits);
KOLO_EXPORT std::shared_ptr<Operation> submit(const AllgatherCall& call, bool waits);
KOLO_EXPORT std::shared_ptr<Operation> submit(const BroadcastCall& call, bool waits);
KOLO_EXPORT std::shared_ptr<Operation> submit(const StringBroadcastCall& call, bool waits);
KOLO_EXPORT std::shared_ptr<Operation> submit(const AlltoallCall& call, bool waits);
KOLO_EXPORT std::shared_ptr<Operation> submit(const BarrierCall& call, bool waits);
KOLO_EXPORT std::shared_ptr<Operation> submit(const JoinCall& call, bool waits);

/// The synchronous form: returns when the operation is done, and throws its error.
template <typename Arguments>
void call(const Arguments& arguments) {
  Future<void>(submit(arguments, /*waits=*/true)).get();
}

/// The asynchronous form without a value.
template <typename Arguments>
Future<void> call_async(const Arguments& arguments) {
  return Future<void>(submit(arguments, /*waits=*/false));
}

/// The asynchronous form with a value: the future owns and returns `value`. The arguments may refer
/// to it.
template <typename Arguments, typename T>
Future<T> call_async(const Arguments& arguments, std::unique_ptr<T>&& value) {
  auto operation = submit(arguments, /*waits=*/false);
  return {std::move(operation), std::move(value)};
}

/// The number of sessions that this process has started plus the number of joins. A join that
/// fails does not count, so the ranks of a session see the number change at the same place among
/// their operations.
[[nodiscard]] KOLO_EXPORT std::int64_t step_epoch() noexcept;

/// Records that an optimizer has ended `passes` passes with a reduction since `step_epoch` last
/// changed. Returns the largest number that any optimizer has recorded since. If this rank leaves
/// the session while others need it, their errors state that number.
KOLO_EXPORT std::int64_t note_passes(std::int64_t passes) noexcept;
/// Records whether the last backward pass has thrown on this rank, for the same errors.
KOLO_EXPORT void note_failed_pass(bool failed) noexcept;

/// While this object lives and `for_another` is true, the thread that constructed it submits on
/// behalf of another thread, which waits for the operations. Frameworks such as LibTorch have
/// threads of this kind, which may never end. So the thread does not count as one that may still
/// submit an operation for which other ranks wait.
class SubmitsFor {
 public:
  KOLO_EXPORT explicit SubmitsFor(bool for_another) noexcept;
  KOLO_EXPORT ~SubmitsFor();
  SubmitsFor& operator=(SubmitsFor&&) = delete;

 private:
  bool before_;
};

/// A number that no other rank of this host has at the same time. It is `local_rank()`, except in
/// an elastic job, where `local_rank()` changes between sessions: there it is the slot that kolorun
/// has given this process.
[[nodiscard]] KOLO_EXPORT int local_slot();

/// True in an elastic job before `kolo::elastic::run`, where other ranks may be in another call.
/// Objects that need an agreement are then constructed without it, and agree in `rejoin`.
[[nodiscard]] KOLO_EXPORT bool agreements_are_deferred() noexcept;

/// The number of rows that this rank gets in a reducescatter of `rows` rows. Throws as the
/// operation does.
KOLO_EXPORT std::int64_t own_reducescatter_rows(std::int64_t rows, const ProcessSet& set);

/// An allocator that calls `allocate` and stores the number of rows of each rank in `counts`, which
/// must outlive the operation.
inline Allocator noting(std::vector<std::int64_t>& counts, Allocator allocate) {
  if (!allocate) return nullptr;  // refused by `submit`
  return [&counts, allocate = std::move(allocate)](std::span<const std::int64_t> rows) {
    counts.assign(rows.begin(), rows.end());
    return allocate(rows);
  };
}

/// An allocator that resizes `gathered` once the counts are known. `gathered` must outlive the
/// operation.
template <typename T>
Allocator gather_into(Gathered<T>& gathered) {
  return noting(gathered.counts, [&gathered](std::span<const std::int64_t> counts) -> void* {
    std::int64_t total = 0;
    for (const std::int64_t count : counts) total += count;
    gathered.values.resize(static_cast<std::size_t>(total));
    return gathered.values.data();
  });
}

/// The alltoall of a range. `counts` is null for equal counts.
template <typename R>
Future<Gathered<element_of<R>>> alltoall_of_range(R&& range,
                                                  const std::vector<std::int64_t>* counts,
                                                  const AlltoallOptions& options) {
  auto value = std::make_unique<Gathered<element_of<R>>>();
  const Allocator allocate = gather_into(*value);
  return call_async(AlltoallCall{ConstTensorView(range), counts, allocate, options},
                    std::move(value));
}

}  // namespace detail

template <OwningRange R>
Future<std::remove_cvref_t<R>> allreduce_async(R&& owned, const AllreduceOptions& options) {
  auto value = std::make_unique<std::remove_cvref_t<R>>(std::forward<R>(owned));
  const TensorView view(*value);
  return detail::call_async(detail::AllreduceCall{view, view, options}, std::move(value));
}

template <ConstTensorRange R>
Future<std::vector<detail::stored_as<detail::element_of<R>>>> reducescatter_async(
    R&& range, const ReducescatterOptions& options) {
  using T = detail::element_of<R>;
  const ConstTensorView input(range);
  const std::int64_t rows = detail::own_reducescatter_rows(input.elements(), options.process_set);
  auto value = std::make_unique<std::vector<detail::stored_as<T>>>(static_cast<std::size_t>(rows));
  const TensorView output(static_cast<void*>(value->data()), Shape(rows), input.dtype());
  return detail::call_async(detail::ReducescatterCall{{&input, 1}, {&output, 1}, options},
                            std::move(value));
}

template <ReadableRange R>
std::vector<detail::stored_as<detail::element_of<R>>> reducescatter(
    R&& range, const ReducescatterOptions& options) {
  return reducescatter_async(range, options).get();
}

// A template, because clang 14 otherwise takes `{.name = "x"}` for an Allocator.
template <std::convertible_to<Allocator> A>
Future<std::vector<std::int64_t>> allgather_async(ConstTensorView tensor, A allocate,
                                                  const AllgatherOptions& options) {
  auto rows = std::make_unique<std::vector<std::int64_t>>();
  const Allocator noting = detail::noting(*rows, Allocator(std::move(allocate)));
  return detail::call_async(detail::AllgatherCall{{&tensor, 1}, {&noting, 1}, options},
                            std::move(rows));
}

template <std::convertible_to<Allocator> A>
std::vector<std::int64_t> allgather(ConstTensorView tensor, A allocate,
                                    const AllgatherOptions& options) {
  return allgather_async(std::move(tensor), std::move(allocate), options).get();
}

template <ConstTensorRange R>
Future<Gathered<detail::element_of<R>>> allgather_async(R&& range,
                                                        const AllgatherOptions& options) {
  auto value = std::make_unique<Gathered<detail::element_of<R>>>();
  const ConstTensorView tensor(range);
  const Allocator allocate = detail::gather_into(*value);
  return detail::call_async(detail::AllgatherCall{{&tensor, 1}, {&allocate, 1}, options},
                            std::move(value));
}

template <ReadableRange R>
Gathered<detail::element_of<R>> allgather(R&& range, const AllgatherOptions& options) {
  return allgather_async(range, options).get();
}

template <Element T>
std::vector<Gathered<T>> grouped_allgather(std::span<const std::vector<T>> ranges,
                                           const AllgatherOptions& options) {
  std::vector<Gathered<T>> gathered(ranges.size());
  const std::vector<ConstTensorView> tensors(ranges.begin(), ranges.end());
  std::vector<Allocator> allocators;
  for (Gathered<T>& one : gathered) allocators.push_back(detail::gather_into(one));
  detail::call(detail::AllgatherCall{tensors, allocators, options});
  return gathered;
}

template <std::convertible_to<Allocator> A>
Future<std::vector<std::int64_t>> alltoall_async(ConstTensorView tensor,
                                                 std::span<const std::int64_t> counts, A allocate,
                                                 const AlltoallOptions& options) {
  auto received = std::make_unique<std::vector<std::int64_t>>();
  const Allocator noting = detail::noting(*received, Allocator(std::move(allocate)));
  const std::vector<std::int64_t> sent(counts.begin(), counts.end());
  return detail::call_async(detail::AlltoallCall{tensor, &sent, noting, options},
                            std::move(received));
}

template <std::convertible_to<Allocator> A>
std::vector<std::int64_t> alltoall(ConstTensorView tensor, std::span<const std::int64_t> counts,
                                   A allocate, const AlltoallOptions& options) {
  return alltoall_async(std::move(tensor), counts, std::move(allocate), options).get();
}

template <ConstTensorRange R, CountRange Counts>
Future<Gathered<detail::element_of<R>>> alltoall_async(R&& range, const Counts& counts,
                                                       const AlltoallOptions& options) {
  std::vector<std::int64_t> rows;
  for (const auto count : counts) rows.push_back(static_cast<std::int64_t>(count));
  return detail::alltoall_of_range(std::forward<R>(range), &rows, options);
}

template <ReadableRange R, CountRange Counts>
Gathered<detail::element_of<R>> alltoall(R&& range, const Counts& counts,
                                         const AlltoallOptions& options) {
  return alltoall_async(range, counts, options).get();
}

template <ConstTensorRange R>
Future<Gathered<detail::element_of<R>>> alltoall_async(R&& range, const AlltoallOptions& options) {
  return detail::alltoall_of_range(std::forward<R>(range), nullptr, options);
}

template <ReadableRange R>
Gathered<detail::element_of<R>> alltoall(R&& range, const AlltoallOptions& options) {
  return alltoall_async(range, options).get();
}

}  // namespace kolo
