// Asynchronous collectives out of place.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/collectives.hpp

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <memory>
#include <utility>

#include "kolo/error.hpp"
#include "kolo/torch/collectives.hpp"
#include "torch/gpu_stream.hpp"
#include "torch/tensor_view.hpp"

namespace kolo {
namespace {

using ::torch::Tensor;

// A copy in row-major order, for an operation to work on in place.
Tensor copy_of(const Tensor& tensor, const std::string& name) {
  detail::require_supported(tensor, name);
  return tensor.detach().clone(at::MemoryFormat::Contiguous);
}

// Also notes the rows that come.
Allocator allocate_result(const Tensor& source, Received& received) {
  return [&received, allocate = detail::rows_like(source, received.output)](
             std::span<const std::int64_t> counts) -> void* {
    received.splits.assign(counts.begin(), counts.end());
    return allocate(counts);
  };
}

// For this rank's rows of the reduced source. The input outlives the operation: the result's
// memory, which the future holds, keeps it.
Tensor own_rows(const Tensor& source, const ReducescatterOptions& options) {
  if (source.dim() == 0) {
    throw InvalidArgument("'" + options.name + "': a scalar has no rows to scatter", options.name);
  }
  std::vector<std::int64_t> sizes = source.sizes().vec();
  sizes.front() = detail::own_reducescatter_rows(sizes.front(), options.process_set);
  const Tensor memory = at::empty(sizes, source.options());
  return at::for_blob(memory.data_ptr(), sizes)
      .deleter([memory, source](void*) {})
      .options(memory.options())
      .target_device(memory.device())
      .make_tensor();
}

Future<Received> exchange_async(const Tensor& tensor, const std::vector<std::int64_t>* splits,
                                const AlltoallOptions& options) {
  const Tensor source = detail::source_of(tensor, options.name);
  auto received = std::make_unique<Received>();
  const detail::StreamOf stream(source);
  auto operation = detail::submit_alltoall(detail::view_of(source), splits,
                                           allocate_result(source, *received), options);
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
  const Tensor source = detail::source_of(tensor, options.name);
  auto result = std::make_unique<Tensor>();
  const detail::StreamOf stream(source);
  auto operation = detail::submit_allgather(detail::view_of(source),
                                            detail::rows_like(source, *result), options);
  return {std::move(operation), std::move(result)};
}

Future<std::vector<Tensor>> grouped_allgather_async(const std::vector<Tensor>& tensors,
                                                    const AllgatherOptions& options) {
  auto results = std::make_unique<std::vector<Tensor>>(tensors.size());
  const auto group = detail::gather_group(tensors, *results, options.name);
  const detail::StreamOf stream(tensors);
  auto operation = detail::submit_grouped_allgather(group.sources, group.allocators, options);
  return {std::move(operation), std::move(results)};
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
  const Tensor source = detail::source_of(tensor, options.name);
  auto result = std::make_unique<Tensor>(own_rows(source, options));
  const detail::StreamOf stream(source);
  auto operation =
      detail::submit_reducescatter(detail::view_of(source), detail::view_of(*result), options);
  return {std::move(operation), std::move(result)};
}

Future<std::vector<Tensor>> grouped_reducescatter_async(const std::vector<Tensor>& tensors,
                                                        const ReducescatterOptions& options) {
  auto results = std::make_unique<std::vector<Tensor>>();
  std::vector<ConstTensorView> sources;
  std::vector<TensorView> outputs;
  for (const Tensor& tensor : tensors) {
    const Tensor source = detail::source_of(tensor, options.name);
    sources.emplace_back(detail::view_of(source));
    results->push_back(own_rows(source, options));
    outputs.push_back(detail::view_of(results->back()));
  }
  const detail::StreamOf stream(tensors);
  auto operation = detail::submit_grouped_reducescatter(sources, outputs, options);
  return {std::move(operation), std::move(results)};
}

}  // namespace kolo
