// Every rank starts from the same parameters and buffers.
#include "kolo/torch/state.hpp"

#include <deque>
#include <unordered_set>

#include "torch/gpu_stream.hpp"
#include "torch/tensor_view.hpp"
#include "training/agreement.hpp"

namespace kolo {
namespace {

struct Broadcast {
  ::torch::Tensor tensor;
  ::torch::Tensor image;  // the same, or a copy in row-major order
  Future<void> future{};
};

void broadcast_all(const NamedParameters& tensors, int root, const ProcessSet& set) {
  detail::require_root("broadcast_parameters", root, set);
  std::vector<detail::Item> items;
  for (const auto& [name, tensor] : tensors) {
    detail::require_supported(tensor, name);
    items.push_back({name, detail::describe(tensor)});
  }
  detail::require_agreement("kolo.broadcast_parameters", "The parameters and buffers", items, set);

  const at::NoGradGuard no_grad;
  std::deque<Broadcast> broadcasts;
  std::unordered_set<const c10::TensorImpl*> seen;  // tied weights are listed more than once
  for (const auto& [name, tensor] : tensors) {
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    Broadcast& broadcast = broadcasts.emplace_back(Broadcast{tensor, tensor.contiguous()});
    const detail::StreamOf stream(broadcast.image);
    broadcast.future =
        broadcast_async(detail::view_of(broadcast.image), root,
                        {.name = "kolo.broadcast_parameters." + name, .process_set = set});
  }
  for (Broadcast& broadcast : broadcasts) {
    broadcast.future.get();
    if (!broadcast.image.is_same(broadcast.tensor)) broadcast.tensor.copy_(broadcast.image);
  }
}

}  // namespace

void broadcast_parameters(::torch::nn::Module& module, int root, const ProcessSet& set) {
  NamedParameters tensors = module.named_parameters().pairs();
  for (auto& buffer : module.named_buffers().pairs()) tensors.push_back(std::move(buffer));
  broadcast_all(tensors, root, set);
}

void broadcast_parameters(const ModuleTensors& tensors, int root, const ProcessSet& set) {
  broadcast_all(tensors.pairs(), root, set);
}

}  // namespace kolo
