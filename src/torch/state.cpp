// SPDX-License-Identifier: Apache-2.0
// Selects this rank's device, and copies one rank's parameters, buffers, optimizer state and
// archives to all ranks.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "kolo/torch/state.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Type.h>
#include <torch/cuda.h>

#include <array>
#include <cstdint>
#include <string>
#include <typeinfo>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "kolo/torch/checkpoint.hpp"
#include "kolo/torch/sharded_optimizer.hpp"
#include "torch/tensor_view.hpp"
#include "training/agreement.hpp"
#include "training/parameter_hashes.hpp"

namespace kolo {

using namespace internal;
namespace {

using ::torch::optim::Optimizer;

struct ParameterBroadcast {
  ::torch::Tensor tensor;
  ::torch::Tensor real;
  ::torch::Tensor contiguous;  // `real` itself, or a copy in row-major order
  Future<void> future{};
};

// The defined tensors, each once: a shared buffer and a tied weight are listed more than once.
NamedParameters distinct_of(const NamedParameters& tensors) {
  NamedParameters distinct;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    require_writable(real_view(tensor), name);
    distinct.emplace_back(name, tensor);
  }
  return distinct;
}

std::vector<Item> items_of(const NamedParameters& tensors) {
  std::vector<Item> items;
  for (const auto& [name, tensor] : tensors)
    if (tensor.defined()) items.push_back({name, describe(tensor)});
  return items;
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

constexpr const char* buffers_operation = "kolo.broadcast_buffers";
constexpr std::int64_t slice_alignment = 16;  // enough for any dtype

/// The buffers of one device, one after another in memory.
struct PackedBuffers {
  ::torch::Device device;
  std::vector<::torch::Tensor> buffers{};  // as real numbers
  std::vector<::torch::Tensor> originals{};
  std::vector<std::int64_t> offsets{};
  std::int64_t bytes = 0;
  ::torch::Tensor memory{};
  Future<void> arrived{};

  void add(const ::torch::Tensor& original) {
    const ::torch::Tensor buffer = real_view(original);
    buffers.push_back(buffer);
    originals.push_back(original);
    offsets.push_back(bytes);
    const auto length = static_cast<std::int64_t>(buffer.nbytes());
    bytes += (length + slice_alignment - 1) / slice_alignment * slice_alignment;
  }

  /// The part of the memory that holds buffer number `i`.
  [[nodiscard]] ::torch::Tensor slice(std::size_t i) const {
    auto* const begin = static_cast<std::byte*>(memory.data_ptr()) + offsets[i];
    return at::from_blob(begin, buffers[i].sizes(), buffers[i].options());
  }
};

// The FNV-1a hash (Fowler, Noll and Vo) of names, dtypes and shapes.
std::uint64_t digest_of(const std::vector<Item>& items) {
  std::uint64_t digest = 0xcbf29ce484222325U;
  const auto mix = [&](const std::string& text) {
    for (const char c : text) digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    digest = (digest ^ 0xffU) * 0x100000001b3U;
  };
  for (const Item& item : items) {
    mix(item.name);
    mix(item.description);
  }
  return digest;
}

// Packs the buffers by device, in the order in which the devices first appear. This order follows
// the names, so it is the same on all ranks, even if GPU indices differ.
std::vector<PackedBuffers> pack(const NamedParameters& buffers, bool fill) {
  std::vector<PackedBuffers> packs;
  for (const auto& [name, buffer] : buffers) {
    auto pack = packs.begin();
    while (pack != packs.end() && pack->device != buffer.device()) ++pack;
    if (pack == packs.end()) pack = packs.insert(pack, PackedBuffers{buffer.device()});
    pack->add(buffer);
  }
  for (PackedBuffers& pack : packs) {
    pack.memory = at::empty({pack.bytes}, at::device(pack.device).dtype(at::kByte));
    if (!fill) continue;
    for (std::size_t i = 0; i < pack.buffers.size(); ++i) pack.slice(i).copy_(pack.buffers[i]);
  }
  return packs;
}

void submit(std::vector<PackedBuffers>& packs, int root, const ProcessSet& set) {
  for (std::size_t i = 0; i < packs.size(); ++i) {
    packs[i].arrived = broadcast_async(
        view_of(packs[i].memory), root,
        {.name = buffers_operation + ("." + std::to_string(i)), .process_set = set});
  }
}

void require_elements(const ::torch::Tensor& tensor, const std::string& name) {
  if (!tensor.defined()) throw InvalidArgument("'" + name + "' is undefined", name);
  if (tensor.is_cpu() && tensor.layout() == at::kStrided && !is_readable(tensor))
    throw InvalidArgument("'" + name + "' has no memory", name);
}

// The maxima of a number and of its complement over the ranks are complements of each other if and
// only if all ranks have the same number.
bool all_have(std::uint64_t number, const ProcessSet& set) {
  std::array<std::uint64_t, 2> both{number, ~number};
  allreduce(both, {.name = buffers_operation, .op = ReduceOp::max, .process_set = set});
  return both[0] == ~both[1];
}

}  // namespace

::torch::Device local_device() {
  const int slot = detail::local_slot();
  if (build_info().cuda.empty() || !::torch::cuda::is_available()) return {c10::DeviceType::CPU};
  const int devices = static_cast<int>(::torch::cuda::device_count());
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(slot % devices)};
}

void broadcast_parameters(const NamedParameters& tensors, int root, const ProcessSet& set) {
  require_root("broadcast_parameters", root, set);
  const at::NoGradGuard no_grad;
  const NamedParameters distinct = distinct_of(tensors);
  // The ranks agree before the first broadcast, so that after a mismatch no tensor has changed.
  require_agreement("kolo.broadcast_parameters", "The parameters and buffers", items_of(tensors),
                    set);
  std::vector<ParameterBroadcast> broadcasts;
  // All broadcasts are submitted before the first wait, so that they travel together.
  for (const auto& [name, tensor] : distinct) {
    const ::torch::Tensor real = real_view(tensor);
    ParameterBroadcast& broadcast =
        broadcasts.emplace_back(ParameterBroadcast{tensor, real, real.contiguous()});
    broadcast.future =
        broadcast_async(view_of(broadcast.contiguous), root,
                        {.name = "kolo.broadcast_parameters." + name, .process_set = set});
  }
  for (ParameterBroadcast& broadcast : broadcasts) {
    broadcast.future.get();
    if (!broadcast.contiguous.is_same(broadcast.real)) broadcast.real.copy_(broadcast.contiguous);
    put_back_real(broadcast.real, broadcast.tensor);
  }
}

void require_equal(const NamedParameters& tensors, const ProcessSet& set) {
  std::vector<Item> items;
  std::vector<ParameterHash> hashes;
  const auto read = [&] {
    for (const auto& [name, tensor] : tensors) {
      require_elements(tensor, name);
      const std::string description = describe(tensor);
      items.push_back({name, description.substr(0, description.find(" strides "))});
      hashes.push_back({name, hash_of(tensor)});
    }
  };
  // An error on one rank is thrown on all ranks: the others would otherwise wait for that rank.
  share_failure("kolo.require_equal.read", "require_equal: ", read, set);
  require_agreement("kolo.require_equal.tensors", "The tensors", items, set);
  require_equal_hashes(hashes, set);
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

void set_learning_rate(Optimizer& optimizer, const std::vector<double>& learning_rates) {
  auto& groups = optimizer.param_groups();
  if (learning_rates.size() != groups.size())
    throw InvalidArgument("set_learning_rate: " + std::to_string(learning_rates.size()) +
                          " learning rates for " + std::to_string(groups.size()) +
                          " parameter groups. Give each group one, or all groups the same");
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].options().set_lr(learning_rates[i]);
}

void detail::broadcast_saved(const std::function<StateDict()>& save,
                             const std::function<void(const StateDict&)>& load, int root,
                             const BroadcastOptions& options) {
  const std::string function = "broadcast_archive";
  require_root(function, root, options.process_set);
  broadcast_state(function, save, load, root, options);
}

void broadcast_buffers(const NamedParameters& listed, int root, const ProcessSet& set) {
  require_root("broadcast_buffers", root, set);
  const at::NoGradGuard no_grad;
  const NamedParameters buffers = distinct_of(listed);
  const std::vector<Item> items = items_of(buffers);
  // The ranks agree before anything is sent: an operation that only some ranks submit would stay
  // pending.
  if (!all_have(digest_of(items), set))
    require_agreement(buffers_operation, "The buffers", items, set);
  std::vector<PackedBuffers> packs = pack(buffers, /*fill=*/rank() == root);
  submit(packs, root, set);
  for (PackedBuffers& pack : packs) {
    pack.arrived.get();
    if (rank() == root) continue;
    for (std::size_t i = 0; i < pack.buffers.size(); ++i) {
      pack.buffers[i].copy_(pack.slice(i));
      put_back_real(pack.buffers[i], pack.originals[i]);
    }
  }
}

}  // namespace kolo
