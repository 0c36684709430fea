// SPDX-License-Identifier: Apache-2.0
// Selects this rank's device, and copies one rank's parameters, optimizer state and archives to all
// ranks.
#include "kolo/torch/state.hpp"

#include <c10/util/Type.h>
#include <torch/cuda.h>

#include <typeinfo>
#include <unordered_set>

#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "kolo/torch/checkpoint.hpp"
#include "kolo/torch/sharded_optimizer.hpp"
#include "torch/gpu_stream.hpp"
#include "torch/tensor_view.hpp"
#include "training/agreement.hpp"

namespace kolo {

using namespace internal;
namespace {

using ::torch::optim::Optimizer;

struct ParameterBroadcast {
  ::torch::Tensor tensor;
  ::torch::Tensor contiguous;  // the tensor itself, or a copy in row-major order
  Future<void> future{};
};

void broadcast_all(const NamedParameters& tensors, int root, const ProcessSet& set) {
  require_root("broadcast_parameters", root, set);
  std::vector<Item> items;
  for (const auto& [name, tensor] : tensors) {
    require_writable(tensor, name);
    items.push_back({name, describe(tensor)});
  }
  // The ranks agree before the first broadcast, so that after a mismatch no tensor has changed.
  require_agreement("kolo.broadcast_parameters", "The parameters and buffers", items, set);

  const at::NoGradGuard no_grad;
  std::vector<ParameterBroadcast> broadcasts;
  // All broadcasts are submitted before the first wait, so that they travel together.
  std::unordered_set<const c10::TensorImpl*> seen;  // tied weights are listed more than once
  for (const auto& [name, tensor] : tensors) {
    if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    ParameterBroadcast& broadcast =
        broadcasts.emplace_back(ParameterBroadcast{tensor, tensor.contiguous()});
    const StreamOf stream(broadcast.contiguous);
    broadcast.future =
        broadcast_async(view_of(broadcast.contiguous), root,
                        {.name = "kolo.broadcast_parameters." + name, .process_set = set});
  }
  for (ParameterBroadcast& broadcast : broadcasts) {
    broadcast.future.get();
    if (!broadcast.contiguous.is_same(broadcast.tensor))
      broadcast.tensor.copy_(broadcast.contiguous);
  }
}

void require_same_structure(const Optimizer& optimizer, const ProcessSet& set) {
  std::vector<Item> items{{"class", c10::demangle(typeid(optimizer).name())}};
  const auto& groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& tensors = groups[i].params();
    for (std::size_t j = 0; j < tensors.size(); ++j) {
      items.push_back(
          {"group" + std::to_string(i) + "." + std::to_string(j), describe(tensors[j])});
    }
  }
  require_agreement("kolo.optimizer_state", "The optimizers", items, set);
}

// Runs `save` on the root and `load` on the other ranks. A failure on any rank is shared at once:
// the ranks that succeeded would otherwise wait for the failed rank in their next collective.
void broadcast_state(const std::string& function, const std::function<StateDict()>& save,
                     const std::function<void(const StateDict&)>& load, int root,
                     const BroadcastOptions& options) {
  const ProcessSet& set = options.process_set;
  std::string bytes;
  const auto save_here = [&] {
    if (rank() == root) bytes = to_safetensors(save());
  };
  share_failure("kolo." + function + ".save", function + ": to save failed: ", save_here, set);
  broadcast(bytes, root, options);
  const auto load_here = [&] {
    if (rank() != root) load(from_safetensors(bytes));
  };
  share_failure("kolo." + function + ".load", function + ": to load failed: ", load_here, set);
}

}  // namespace

::torch::Device local_device() {
  const int slot = detail::local_slot();
  if (build_info().cuda.empty() || !::torch::cuda::is_available()) return {c10::DeviceType::CPU};
  const int devices = static_cast<int>(::torch::cuda::device_count());
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(slot % devices)};
}

void broadcast_parameters(::torch::nn::Module& module, int root, const ProcessSet& set) {
  NamedParameters tensors = module.named_parameters().pairs();
  for (auto& buffer : module.named_buffers().pairs()) tensors.push_back(std::move(buffer));
  broadcast_all(tensors, root, set);
}

void broadcast_parameters(const ModuleTensors& tensors, int root, const ProcessSet& set) {
  broadcast_all(tensors.pairs(), root, set);
}

void broadcast_optimizer_state(Optimizer& optimizer, int root, const ProcessSet& set) {
  const std::string function = "broadcast_optimizer_state";
  require_root(function, root, set);
  if (dynamic_cast<const detail::ShardedBase*>(&optimizer) != nullptr)
    throw InvalidArgument(
        "broadcast_optimizer_state: the ranks of a ShardedOptimizer have different parts of its "
        "state. Call load_full_state() on all ranks");
  require_same_structure(optimizer, set);
  broadcast_state(
      function, [&] { return state(optimizer); },
      [&](const StateDict& saved) { load_state(optimizer, saved); }, root,
      {.name = "kolo.optimizer_state.bytes", .process_set = set});
}

void set_learning_rate(Optimizer& optimizer, double learning_rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(learning_rate);
}

void detail::broadcast_saved(const std::function<StateDict()>& save,
                             const std::function<void(const StateDict&)>& load, int root,
                             const BroadcastOptions& options) {
  const std::string function = "broadcast_archive";
  require_root(function, root, options.process_set);
  broadcast_state(function, save, load, root, options);
}

}  // namespace kolo
