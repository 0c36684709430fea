// SPDX-License-Identifier: Apache-2.0
// The collectives that autograd does not record: in-place and asynchronous ones.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/collectives.hpp

#include "kolo/collectives.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "kolo/error.hpp"
#include "kolo/torch/collectives.hpp"
#include "torch/tensor_view.hpp"

namespace kolo {

using namespace internal;
namespace {

using ::torch::Tensor;
using Tensors = std::vector<Tensor>;

// The tensor itself if it is in row-major order, else a copy.
Tensor image_of(const Tensor& tensor, const std::string& name) {
  require_writable(tensor, name);
  return tensor.is_contiguous() ? tensor : tensor.detach().contiguous();
}

// Copies the result of an operation from the image into the tensor.
void put_back(const Tensor& image, const Tensor& tensor) {
  if (image.is_same(tensor)) {
    mark_changed(tensor);
  } else {
    const at::NoGradGuard no_grad;
    tensor.copy_(image);
  }
}

// A view for an asynchronous operation in place.
TensorView view_without_gaps(const Tensor& tensor, const std::string& name) {
  require_supported(tensor, name);
  if (!tensor.is_non_overlapping_and_dense()) {
    throw InvalidArgument("'" + name + "': " + describe(tensor) +
                              " is not dense in memory, which asynchronous in-place operations "
                              "require; call contiguous()",
                          name);
  }
  const TensorView view = view_of(tensor);
  mark_changed(tensor);
  return view;
}

// A copy in row-major order, for an operation in place.
Tensor copy_of(const Tensor& tensor, const std::string& name) {
  require_supported(tensor, name);
  return tensor.detach().clone(at::MemoryFormat::Contiguous);
}

// Makes a tensor for this rank's rows of the reduced source. The tensor keeps the source alive, and
// the future keeps the tensor, so both outlive the operation.
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

// Starts an alltoall. `splits` becomes the `counts` of AlltoallCall.
Future<Received> exchange(const Tensor& tensor, const std::vector<std::int64_t>* splits,
                          const AlltoallOptions& options) {
  const Tensor source = source_of(tensor, options.name);
  auto received = std::make_unique<Received>();
  const Allocator allocate = detail::noting(received->splits, rows_like(source, received->output));
  return call_async(detail::AlltoallCall{view_of(source), splits, allocate, options},
                    std::move(received));
}

}  // namespace

void allreduce_(const Tensor& tensor, const AllreduceOptions& options) {
  const Tensor image = image_of(tensor, options.name);
  allreduce(view_of(image), options);
  put_back(image, tensor);
}

Future<Tensor> allreduce_async_(const Tensor& tensor, const AllreduceOptions& options) {
  const TensorView view = view_without_gaps(tensor, options.name);
  return call_async(detail::AllreduceCall{view, view, options}, std::make_unique<Tensor>(tensor));
}

Future<Tensor> allreduce_async(const Tensor& tensor, const AllreduceOptions& options) {
  return allreduce_async_(copy_of(tensor, options.name), options);
}

void grouped_allreduce_(const Tensors& tensors, const GroupedAllreduceOptions& options) {
  Tensors images;
  std::vector<TensorView> views;
  for (const Tensor& tensor : tensors) {
    images.push_back(image_of(tensor, options.name));
    views.push_back(view_of(images.back()));
  }
  call(detail::GroupedAllreduceCall{views, options});
  for (std::size_t i = 0; i < tensors.size(); ++i) put_back(images[i], tensors[i]);
}

Future<Tensors> grouped_allreduce_async_(const Tensors& tensors,
                                         const GroupedAllreduceOptions& options) {
  std::vector<TensorView> views;
  for (const Tensor& tensor : tensors) views.push_back(view_without_gaps(tensor, options.name));
  return call_async(detail::GroupedAllreduceCall{views, options},
                    std::make_unique<Tensors>(tensors));
}

Future<Tensors> grouped_allreduce_async(const Tensors& tensors,
                                        const GroupedAllreduceOptions& options) {
  Tensors copies;
  for (const Tensor& tensor : tensors) copies.push_back(copy_of(tensor, options.name));
  return grouped_allreduce_async_(copies, options);
}

Future<Tensor> allgather_async(const Tensor& tensor, const AllgatherOptions& options) {
  const Tensor source = source_of(tensor, options.name);
  auto result = std::make_unique<Tensor>();
  const ConstTensorView view = view_of(source);
  const Allocator allocate = rows_like(source, *result);
  return call_async(detail::AllgatherCall{{&view, 1}, {&allocate, 1}, options}, std::move(result));
}

Future<Tensors> grouped_allgather_async(const Tensors& tensors, const AllgatherOptions& options) {
  auto results = std::make_unique<Tensors>(tensors.size());
  const auto group = gather_group(tensors, *results, options.name);
  return call_async(detail::AllgatherCall{group.sources, group.allocators, options},
                    std::move(results));
}

void broadcast_(const Tensor& tensor, int root, const BroadcastOptions& options) {
  const Tensor image = image_of(tensor, options.name);
  broadcast(view_of(image), root, options);
  put_back(image, tensor);
}

Future<Tensor> broadcast_async_(const Tensor& tensor, int root, const BroadcastOptions& options) {
  const TensorView view = view_without_gaps(tensor, options.name);
  return call_async(detail::BroadcastCall{view, view, root, options},
                    std::make_unique<Tensor>(tensor));
}

Future<Tensor> broadcast_async(const Tensor& tensor, int root, const BroadcastOptions& options) {
  return broadcast_async_(copy_of(tensor, options.name), root, options);
}

Future<Received> alltoall_async(const Tensor& tensor, const std::vector<std::int64_t>& splits,
                                const AlltoallOptions& options) {
  return exchange(tensor, &splits, options);
}

Future<Received> alltoall_async(const Tensor& tensor, const AlltoallOptions& options) {
  return exchange(tensor, nullptr, options);
}

Future<Tensor> reducescatter_async(const Tensor& tensor, const ReducescatterOptions& options) {
  const Tensor source = source_of(tensor, options.name);
  auto result = std::make_unique<Tensor>(own_rows(source, options));
  const ConstTensorView input = view_of(source);
  const TensorView output = view_of(*result);
  return call_async(detail::ReducescatterCall{{&input, 1}, {&output, 1}, options},
                    std::move(result));
}

Future<Tensors> grouped_reducescatter_async(const Tensors& tensors,
                                            const ReducescatterOptions& options) {
  auto results = std::make_unique<Tensors>();
  std::vector<ConstTensorView> inputs;
  std::vector<TensorView> outputs;
  for (const Tensor& tensor : tensors) {
    const Tensor source = source_of(tensor, options.name);
    inputs.emplace_back(view_of(source));
    results->push_back(own_rows(source, options));
    outputs.push_back(view_of(results->back()));
  }
  return call_async(detail::ReducescatterCall{inputs, outputs, options}, std::move(results));
}

}  // namespace kolo
