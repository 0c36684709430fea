// The collectives that are templates, and what they stand on. Included by kolo/collectives.hpp.
#pragma once

#include "kolo/collectives.hpp"

namespace kolo {

namespace detail {

/// `step` is part of what must match: an optimizer gives the number of its step.
std::shared_ptr<Operation> submit_allreduce(ConstTensorView input, TensorView output,
                                            const AllreduceOptions& options, std::int64_t step = 0);
std::shared_ptr<Operation> submit_grouped_allreduce(std::span<const TensorView> tensors,
                                                    const GroupedAllreduceOptions& options,
                                                    std::int64_t step = 0);
std::shared_ptr<Operation> submit_broadcast(ConstTensorView input, TensorView output, int root,
                                            const BroadcastOptions& options);
std::shared_ptr<Operation> submit_reducescatter(ConstTensorView input, TensorView output,
                                                const ReducescatterOptions& options);
std::shared_ptr<Operation> submit_grouped_reducescatter(std::span<const ConstTensorView> inputs,
                                                        std::span<const TensorView> outputs,
                                                        const ReducescatterOptions& options);
std::shared_ptr<Operation> submit_allgather(ConstTensorView tensor, Allocator allocate,
                                            const AllgatherOptions& options);
std::shared_ptr<Operation> submit_grouped_allgather(std::span<const ConstTensorView> tensors,
                                                    std::span<const Allocator> allocators,
                                                    const AllgatherOptions& options);
/// The future gives the rows of each.
Future<std::vector<std::int64_t>> allgather_rows(const ConstTensorView& tensor, Allocator allocate,
                                                 const AllgatherOptions& options);
/// Without counts: equal ones.
std::shared_ptr<Operation> submit_alltoall(ConstTensorView tensor,
                                           const std::vector<std::int64_t>* counts,
                                           Allocator allocate, const AlltoallOptions& options);

/// Rows of a one-dimensional tensor that this rank gets. Throws as the operation would.
std::int64_t own_reducescatter_rows(std::int64_t rows, const ProcessSet& set);

/// Makes room in `gathered` once the counts are known. `gathered` outlives the operation.
template <typename T>
Allocator gather_into(Gathered<T>& gathered) {
  return [&gathered](std::span<const std::int64_t> counts) -> void* {
    std::int64_t total = 0;
    for (const std::int64_t count : counts) total += count;
    gathered.counts.assign(counts.begin(), counts.end());
    gathered.values.resize(static_cast<std::size_t>(total));
    return gathered.values.data();
  };
}

}  // namespace detail

template <OwningRange R>
Future<std::remove_cvref_t<R>> allreduce_async(R&& owned, const AllreduceOptions& options) {
  auto value = std::make_unique<std::remove_cvref_t<R>>(std::forward<R>(owned));
  const TensorView view(*value);
  auto operation = detail::submit_allreduce(view, view, options);
  return {std::move(operation), std::move(value)};
}

template <ConstTensorRange R>
Future<std::vector<detail::stored_as<detail::element_of<R>>>> reducescatter_async(
    R&& range, const ReducescatterOptions& options) {
  using T = detail::element_of<R>;
  const ConstTensorView input(range);
  const std::int64_t rows = detail::own_reducescatter_rows(input.elements(), options.process_set);
  auto value = std::make_unique<std::vector<detail::stored_as<T>>>(static_cast<std::size_t>(rows));
  const TensorView output(static_cast<void*>(value->data()), Shape(rows), input.dtype());
  auto operation = detail::submit_reducescatter(input, output, options);
  return {std::move(operation), std::move(value)};
}

template <ConstTensorRange R>
std::vector<detail::stored_as<detail::element_of<R>>> reducescatter(
    R&& range, const ReducescatterOptions& options) {
  return reducescatter_async(std::forward<R>(range), options).get();
}

// A template, or clang 14 fails to see that `{.name = "x"}` is no Allocator.
template <std::convertible_to<Allocator> A>
Future<std::vector<std::int64_t>> allgather_async(ConstTensorView tensor, A allocate,
                                                  const AllgatherOptions& options) {
  return detail::allgather_rows(tensor, Allocator(std::move(allocate)), options);
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
  auto operation =
      detail::submit_allgather(ConstTensorView(range), detail::gather_into(*value), options);
  return {std::move(operation), std::move(value)};
}

template <ConstTensorRange R>
Gathered<detail::element_of<R>> allgather(R&& range, const AllgatherOptions& options) {
  return allgather_async(std::forward<R>(range), options).get();
}

template <Element T>
std::vector<Gathered<T>> grouped_allgather(std::span<const std::vector<T>> ranges,
                                           const AllgatherOptions& options) {
  std::vector<Gathered<T>> gathered(ranges.size());
  std::vector<ConstTensorView> tensors(ranges.begin(), ranges.end());
  std::vector<Allocator> allocators;
  for (Gathered<T>& one : gathered) allocators.push_back(detail::gather_into(one));
  static_cast<void>(grouped_allgather(tensors, allocators, options));
  return gathered;
}

template <ConstTensorRange R, CountRange Counts>
Future<Gathered<detail::element_of<R>>> alltoall_async(R&& range, const Counts& counts,
                                                       const AlltoallOptions& options) {
  std::vector<std::int64_t> rows;
  for (const auto count : counts) rows.push_back(static_cast<std::int64_t>(count));
  auto value = std::make_unique<Gathered<detail::element_of<R>>>();
  auto operation =
      detail::submit_alltoall(ConstTensorView(range), &rows, detail::gather_into(*value), options);
  return {std::move(operation), std::move(value)};
}

template <ConstTensorRange R, CountRange Counts>
Gathered<detail::element_of<R>> alltoall(R&& range, const Counts& counts,
                                         const AlltoallOptions& options) {
  return alltoall_async(std::forward<R>(range), counts, options).get();
}

template <ConstTensorRange R>
Future<Gathered<detail::element_of<R>>> alltoall_async(R&& range, const AlltoallOptions& options) {
  auto value = std::make_unique<Gathered<detail::element_of<R>>>();
  auto operation = detail::submit_alltoall(ConstTensorView(range), nullptr,
                                           detail::gather_into(*value), options);
  return {std::move(operation), std::move(value)};
}

template <ConstTensorRange R>
Gathered<detail::element_of<R>> alltoall(R&& range, const AlltoallOptions& options) {
  return alltoall_async(std::forward<R>(range), options).get();
}

}  // namespace kolo
