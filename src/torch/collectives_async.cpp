// Asynchronous collectives out of place.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/collectives.hpp

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <memory>
#include <utility>

#include "kolo/error.hpp"
#include "kolo/torch/collectives.hpp"
#include "torch/tensor_view.hpp"

namespace kolo {
namespace {

using ::torch::Tensor;

// A copy in row-major order, for an operation to work on in place.
Tensor copy_of(const Tensor& tensor, const std::string& name) {
  detail::require_supported(tensor, name);
  return tensor.detach().clone(at::MemoryFormat::Contiguous);
}

Tensor source_of(const Tensor& tensor, const std::string& name) {
  detail::require_supported(tensor, name);
  return tensor.detach().contiguous();
}

// Keeps the source alive as long as the operation, and notes the rows that come.
Allocator allocate_result(const Tensor& source, Tensor& result, std::vector<std::int64_t>* rows) {
  return [source, rows, allocate = detail::rows_like(source, result)](
             std::span<const std::int64_t> counts) -> void* {
    if (rows != nullptr) rows->assign(counts.begin(), counts.end());
    return allocate(counts);
  };
}

// The input outlives the operation: the result's memory, which the future holds, keeps it.
Tensor rows_that_keep(const Tensor& source, std::int64_t rows) {
  std::vector<std::int64_t> sizes = source.sizes().vec();
  sizes.front() = rows;
  const Tensor memory = at::empty(sizes, source.options());
  return at::from_blob(
      memory.data_ptr(), sizes, [memory, source](void*) {}, memory.options());
}

Future<Received> exchange_async(const Tensor& tensor, const std::vector<std::int64_t>* splits,
                                const AlltoallOptions& options) {
  const Tensor source = source_of(tensor, options.name);
  auto received = std::make_unique<Received>();
  auto operation = detail::submit_alltoall(
      detail::view_of(source), splits, allocate_result(source, received->output, &received->splits),
      options);
  return {std::move(operation), std::move(received)};
}

}  // namespace

Future<Tensor> allreduce_async(const Tensor& tensor, const AllreduceOptions& options) {
  return allreduce_async_(copy_of(tensor, options.name), options);
}

Future<std::vector<Tensor>> grouped_allreduce_async(const std::vector<Tensor>& tensors,
                                                    const GroupedAllreduceOptions& options) {
  std::vector<Tensor> copies;
  for (const Tensor& tensor : tensors) copies.push_back(copy_of(tensor, options.name));
  return grouped_allreduce_async_(copies, options);
}

Future<Tensor> allgather_async(const Tensor& tensor, const AllgatherOptions& options) {
  const Tensor source = source_of(tensor, options.name);
  auto result = std::make_unique<Tensor>();
  auto operation = detail::submit_allgather(detail::view_of(source),
                                            allocate_result(source, *result, nullptr), options);
  return {std::move(operation), std::move(result)};
}

Future<Tensor> broadcast_async(const Tensor& tensor, int root, const BroadcastOptions& options) {
  return broadcast_async_(copy_of(tensor, options.name), root, options);
}

Future<Received> alltoall_async(const Tensor& tensor, const std::vector<std::int64_t>& splits,
                                const AlltoallOptions& options) {
  return exchange_async(tensor, &splits, options);
}

Future<Received> alltoall_async(const Tensor& tensor, const AlltoallOptions& options) {
  return exchange_async(tensor, nullptr, options);
}

Future<Tensor> reducescatter_async(const Tensor& tensor, const ReducescatterOptions& options) {
  const Tensor source = source_of(tensor, options.name);
  if (source.dim() == 0) {
    throw InvalidArgument("'" + options.name + "': a scalar has no rows to scatter", options.name);
  }
  const std::int64_t rows = detail::own_reducescatter_rows(source.size(0), options.process_set);
  auto result = std::make_unique<Tensor>(rows_that_keep(source, rows));
  auto operation =
      detail::submit_reducescatter(detail::view_of(source), detail::view_of(*result), options);
  return {std::move(operation), std::move(result)};
}

}  // namespace kolo
