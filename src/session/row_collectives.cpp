// The public face of the collectives that move rows: allgather, alltoall, reducescatter.
#include <fmt/format.h>

#include "base/format.hpp"
#include "kolo/collectives.hpp"
#include "session/request.hpp"

namespace kolo {
namespace {

using session::Request;
using RowCounts = std::vector<std::int64_t>;

/// An allocator that also notes the rows of each rank in `counts`, which outlives the operation.
Allocator noting(RowCounts& counts, Allocator allocate) {
  return [&counts, allocate = std::move(allocate)](std::span<const std::int64_t> rows) {
    counts.assign(rows.begin(), rows.end());
    return allocate(rows);
  };
}

// ---- reducescatter ----

void add_reducescatter(Request& request, const ConstTensorView& input, const TensorView& output) {
  if (input.shape().dimensions() == 0) request.refuse("a scalar has no rows to be shared");
  request.add_rows(input, /*any_rows=*/false, output.data(), nullptr);
  const session::Rows rows = session::rows_of(input.shape());
  const std::int64_t own = reducescatter_rows(rows.rows, request.set().own_place,
                                              static_cast<int>(request.set().ranks.size()));
  if (output.dtype() != input.dtype() || output.device() != input.device() ||
      output.elements() != own * rows.row_elements ||
      (output.elements() > 0 && output.data() == nullptr))
    request.refuse(fmt::format("the output must hold {} rows of {} {} elements, it is {} {}", own,
                               rows.row_elements, to_string(input.dtype()),
                               to_string(output.dtype()), to_string(output.shape())));
}

Request describe_reducescatter(std::span<const ConstTensorView> inputs,
                               std::span<const TensorView> outputs,
                               const ReducescatterOptions& options) {
  Request request(OperationType::reducescatter, options.name, options.process_set);
  if (inputs.empty()) request.refuse("a group needs at least one tensor");
  if (inputs.size() != outputs.size())
    request.refuse(fmt::format("{} inputs, but {} outputs", inputs.size(), outputs.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i) add_reducescatter(request, inputs[i], outputs[i]);
  if (options.op == ReduceOp::adasum) request.refuse("adasum needs whole tensors");
  request.set_reduction(options.op, options.prescale, options.postscale, options.compression);
  return request;
}

Request describe_reducescatter(const ConstTensorView& input, const TensorView& output,
                               const ReducescatterOptions& options) {
  return describe_reducescatter({&input, 1}, {&output, 1}, options);
}

// ---- allgather ----

Request describe_allgather(std::span<const ConstTensorView> tensors,
                           std::span<const Allocator> allocators, const AllgatherOptions& options) {
  Request request(OperationType::allgather, options.name, options.process_set);
  if (tensors.empty()) request.refuse("a group needs at least one tensor");
  if (tensors.size() != allocators.size())
    request.refuse(fmt::format("{} tensors, but {} allocators", tensors.size(), allocators.size()));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!allocators[i]) request.refuse("there is no allocator");
    request.add_rows(tensors[i], /*any_rows=*/true, nullptr, allocators[i]);
  }
  return request;
}

Request describe_allgather(const ConstTensorView& tensor, const Allocator& allocate,
                           const AllgatherOptions& options) {
  return describe_allgather({&tensor, 1}, {&allocate, 1}, options);
}

// ---- alltoall ----

RowCounts equal_counts(const Request& request, std::int64_t rows) {
  const auto members = static_cast<std::int64_t>(request.set().ranks.size());
  if (rows % members != 0)
    request.refuse(fmt::format("{} rows cannot be sent in equal parts to {} ranks; give counts",
                               rows, members));
  return RowCounts(static_cast<std::size_t>(members), rows / members);
}

void check_counts(const Request& request, const RowCounts& counts, std::int64_t rows) {
  if (counts.size() != request.set().ranks.size())
    request.refuse(
        fmt::format("{} counts for {} ranks", counts.size(), request.set().ranks.size()));
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) {
    if (count < 0) request.refuse(fmt::format("count {} is negative", count));
    sum += count;
  }
  if (sum != rows)
    request.refuse(fmt::format("the counts add up to {}, the tensor has {} rows", sum, rows));
}

Request describe_alltoall(const ConstTensorView& tensor, const RowCounts* counts,
                          Allocator allocate, const AlltoallOptions& options) {
  Request request(OperationType::alltoall, options.name, options.process_set);
  if (tensor.shape().dimensions() == 0) request.refuse("a scalar has no rows to be sent");
  if (!allocate) request.refuse("there is no allocator");
  request.add_rows(tensor, /*any_rows=*/true, nullptr, std::move(allocate));
  const std::int64_t rows = request.member().rows;
  RowCounts checked = counts != nullptr ? *counts : equal_counts(request, rows);
  check_counts(request, checked, rows);
  request.member().counts = std::move(checked);
  return request;
}

}  // namespace

void reducescatter(ConstTensorView input, TensorView output, const ReducescatterOptions& options) {
  describe_reducescatter(input, output, options).run();
}

Future<void> reducescatter_async(ConstTensorView input, TensorView output,
                                 const ReducescatterOptions& options) {
  return Future<void>(describe_reducescatter(input, output, options).submit());
}

void grouped_reducescatter(std::span<const ConstTensorView> inputs,
                           std::span<const TensorView> outputs,
                           const ReducescatterOptions& options) {
  describe_reducescatter(inputs, outputs, options).run();
}

Future<void> grouped_reducescatter_async(std::span<const ConstTensorView> inputs,
                                         std::span<const TensorView> outputs,
                                         const ReducescatterOptions& options) {
  return Future<void>(detail::submit_grouped_reducescatter(inputs, outputs, options));
}

std::vector<std::string> allgather(const std::string& text, const AllgatherOptions& options) {
  Gathered<char> gathered = allgather(std::span(text), options);
  std::vector<std::string> texts;
  auto next = gathered.values.begin();
  for (const std::int64_t count : gathered.counts) {
    texts.emplace_back(next, next + count);
    next += count;
  }
  return texts;
}

std::vector<std::vector<std::int64_t>> grouped_allgather(std::span<const ConstTensorView> tensors,
                                                         std::span<const Allocator> allocators,
                                                         const AllgatherOptions& options) {
  return grouped_allgather_async(tensors, allocators, options).get();
}

Future<std::vector<std::vector<std::int64_t>>> grouped_allgather_async(
    std::span<const ConstTensorView> tensors, std::span<const Allocator> allocators,
    const AllgatherOptions& options) {
  auto counts = std::make_unique<std::vector<RowCounts>>(allocators.size());
  std::vector<Allocator> notes;
  for (std::size_t i = 0; i < allocators.size(); ++i)
    notes.push_back(allocators[i] ? noting((*counts)[i], allocators[i]) : nullptr);
  auto operation = describe_allgather(tensors, notes, options).submit();
  return {std::move(operation), std::move(counts)};
}

std::vector<std::int64_t> alltoall(ConstTensorView tensor, std::span<const std::int64_t> counts,
                                   Allocator allocate, const AlltoallOptions& options) {
  return alltoall_async(std::move(tensor), counts, std::move(allocate), options).get();
}

Future<std::vector<std::int64_t>> alltoall_async(ConstTensorView tensor,
                                                 std::span<const std::int64_t> counts,
                                                 Allocator allocate,
                                                 const AlltoallOptions& options) {
  auto received = std::make_unique<RowCounts>();
  if (allocate) allocate = noting(*received, std::move(allocate));
  const RowCounts rows(counts.begin(), counts.end());
  auto operation = describe_alltoall(tensor, &rows, std::move(allocate), options).submit();
  return {std::move(operation), std::move(received)};
}

namespace detail {

std::shared_ptr<Operation> submit_reducescatter(ConstTensorView input, TensorView output,
                                                const ReducescatterOptions& options) {
  return describe_reducescatter(input, output, options).submit();
}

std::shared_ptr<Operation> submit_grouped_reducescatter(std::span<const ConstTensorView> inputs,
                                                        std::span<const TensorView> outputs,
                                                        const ReducescatterOptions& options) {
  return describe_reducescatter(inputs, outputs, options).submit();
}

std::shared_ptr<Operation> submit_allgather(ConstTensorView tensor, Allocator allocate,
                                            const AllgatherOptions& options) {
  return describe_allgather(tensor, allocate, options).submit();
}

Future<std::vector<std::int64_t>> allgather_rows(const ConstTensorView& tensor, Allocator allocate,
                                                 const AllgatherOptions& options) {
  auto counts = std::make_unique<RowCounts>();
  if (allocate) allocate = noting(*counts, std::move(allocate));
  auto operation = describe_allgather(tensor, allocate, options).submit();
  return {std::move(operation), std::move(counts)};
}

std::shared_ptr<Operation> submit_grouped_allgather(std::span<const ConstTensorView> tensors,
                                                    std::span<const Allocator> allocators,
                                                    const AllgatherOptions& options) {
  return describe_allgather(tensors, allocators, options).submit();
}

std::shared_ptr<Operation> submit_alltoall(ConstTensorView tensor,
                                           const std::vector<std::int64_t>* counts,
                                           Allocator allocate, const AlltoallOptions& options) {
  return describe_alltoall(tensor, counts, std::move(allocate), options).submit();
}

std::int64_t own_reducescatter_rows(std::int64_t rows, const ProcessSet& set) {
  const Request request(OperationType::reducescatter, "", set);
  return reducescatter_rows(rows, request.set().own_place,
                            static_cast<int>(request.set().ranks.size()));
}

}  // namespace detail

}  // namespace kolo
