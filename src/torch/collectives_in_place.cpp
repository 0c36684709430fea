// Collectives in place.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/collectives.hpp

#include <utility>

#include "kolo/error.hpp"
#include "kolo/torch/collectives.hpp"
#include "torch/gpu_stream.hpp"
#include "torch/tensor_view.hpp"

namespace kolo {
namespace {

using ::torch::Tensor;

// The tensor itself where its elements lie in row-major order, else a copy.
Tensor image_of(const Tensor& tensor, const std::string& name) {
  detail::require_supported(tensor, name);
  return tensor.is_contiguous() ? tensor : tensor.detach().contiguous();
}

// Puts what an operation has done to the image into the tensor.
void put_back(const Tensor& image, const Tensor& tensor) {
  if (image.is_same(tensor)) {
    detail::mark_changed(tensor);
  } else {
    const at::NoGradGuard no_grad;
    tensor.copy_(image);
  }
}

// What an operation can work on after the call has returned.
TensorView view_without_gaps(const Tensor& tensor, const std::string& name) {
  detail::require_supported(tensor, name);
  if (!tensor.is_non_overlapping_and_dense()) {
    throw InvalidArgument("'" + name + "': " + detail::describe(tensor) +
                              " does not lie in memory without gaps, as an asynchronous operation "
                              "in place needs it",
                          name);
  }
  const TensorView view = detail::view_of(tensor);
  detail::mark_changed(tensor);
  return view;
}

}  // namespace

void allreduce_(Tensor& tensor, const AllreduceOptions& options) {
  const Tensor image = image_of(tensor, options.name);
  const detail::StreamOf stream(image);
  allreduce(detail::view_of(image), options);
  put_back(image, tensor);
}

Future<Tensor> allreduce_async_(const Tensor& tensor, const AllreduceOptions& options) {
  const TensorView view = view_without_gaps(tensor, options.name);
  const detail::StreamOf stream(tensor);
  auto operation = detail::submit_allreduce(view, view, options);
  return {std::move(operation), std::make_unique<Tensor>(tensor)};
}

void grouped_allreduce_(const std::vector<Tensor>& tensors,
                        const GroupedAllreduceOptions& options) {
  std::vector<Tensor> images;
  std::vector<TensorView> views;
  for (const Tensor& tensor : tensors) {
    images.push_back(image_of(tensor, options.name));
    views.push_back(detail::view_of(images.back()));
  }
  const detail::StreamOf stream(images);
  grouped_allreduce(std::span<const TensorView>(views), options);
  for (std::size_t i = 0; i < tensors.size(); ++i) put_back(images[i], tensors[i]);
}

Future<std::vector<Tensor>> grouped_allreduce_async_(const std::vector<Tensor>& tensors,
                                                     const GroupedAllreduceOptions& options) {
  std::vector<TensorView> views;
  for (const Tensor& tensor : tensors) views.push_back(view_without_gaps(tensor, options.name));
  const detail::StreamOf stream(tensors);
  auto operation = detail::submit_grouped_allreduce(views, options);
  return {std::move(operation), std::make_unique<std::vector<Tensor>>(tensors)};
}

void broadcast_(Tensor& tensor, int root, const BroadcastOptions& options) {
  const Tensor image = image_of(tensor, options.name);
  const detail::StreamOf stream(image);
  broadcast(detail::view_of(image), root, options);
  put_back(image, tensor);
}

Future<Tensor> broadcast_async_(const Tensor& tensor, int root, const BroadcastOptions& options) {
  const TensorView view = view_without_gaps(tensor, options.name);
  const detail::StreamOf stream(tensor);
  auto operation = detail::submit_broadcast(view, view, root, options);
  return {std::move(operation), std::make_unique<Tensor>(tensor)};
}

}  // namespace kolo
