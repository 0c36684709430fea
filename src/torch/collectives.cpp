// Collectives on single tensors.
#include "kolo/torch.hpp"
#include "torch/tensor_view.hpp"

namespace kolo {
namespace {

// Calls `operate` with the tensor's elements in row-major order, and puts the result into the
// tensor.
template <typename Operate>
void in_place(::torch::Tensor& tensor, const std::string& name, const Operate& operate) {
  detail::require_supported(tensor, name);
  if (tensor.is_contiguous()) {
    operate(detail::view_of(tensor));
    return;
  }
  const at::NoGradGuard no_grad;
  const ::torch::Tensor image = tensor.contiguous();
  operate(detail::view_of(image));
  tensor.copy_(image);
}

}  // namespace

void allreduce_(::torch::Tensor& tensor, const AllreduceOptions& options) {
  in_place(tensor, options.name, [&](const TensorView& view) { allreduce(view, options); });
}

::torch::Tensor allreduce(const ::torch::Tensor& tensor, const AllreduceOptions& options) {
  detail::require_supported(tensor, options.name);
  const ::torch::Tensor result = tensor.detach().clone(at::MemoryFormat::Contiguous);
  allreduce(detail::view_of(result), options);
  return result;
}

void broadcast_(::torch::Tensor& tensor, int root, const BroadcastOptions& options) {
  in_place(tensor, options.name, [&](const TensorView& view) { broadcast(view, root, options); });
}

}  // namespace kolo
