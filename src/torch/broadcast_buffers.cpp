// SPDX-License-Identifier: Apache-2.0
// Copies one rank's buffers to all ranks, packed into one operation per device.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <array>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "kolo/torch/state.hpp"
#include "torch/gpu_stream.hpp"
#include "torch/tensor_view.hpp"
#include "training/agreement.hpp"

namespace kolo {

using namespace internal;
namespace {

constexpr const char* buffers_operation = "kolo.broadcast_buffers";
constexpr std::int64_t slice_alignment = 16;  // enough for any dtype

/// The buffers of one device, one after another in memory.
struct PackedBuffers {
  ::torch::Device device;
  std::vector<::torch::Tensor> buffers{};
  std::vector<std::int64_t> offsets{};
  std::int64_t bytes = 0;
  ::torch::Tensor memory{};
  Future<void> arrived{};

  void add(const ::torch::Tensor& buffer) {
    buffers.push_back(buffer);
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

NamedParameters distinct_buffers(const ::torch::nn::Module& module) {
  NamedParameters distinct;
  std::unordered_set<const c10::TensorImpl*> seen;  // a shared buffer is listed more than once
  for (auto& [name, buffer] : module.named_buffers().pairs()) {
    if (!buffer.defined() || !seen.insert(buffer.unsafeGetTensorImpl()).second) continue;
    require_writable(buffer, name);
    distinct.emplace_back(name, buffer);
  }
  return distinct;
}

std::vector<Item> items_of(const NamedParameters& buffers) {
  std::vector<Item> items;
  for (const auto& [name, buffer] : buffers) items.push_back({name, describe(buffer)});
  return items;
}

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
    const StreamOf stream(packs[i].memory);
    packs[i].arrived = broadcast_async(
        view_of(packs[i].memory), root,
        {.name = buffers_operation + ("." + std::to_string(i)), .process_set = set});
  }
}

// The maxima of a number and of its complement over the ranks are complements of each other if and
// only if all ranks have the same number.
bool all_have(std::uint64_t number, const ProcessSet& set) {
  std::array<std::uint64_t, 2> both{number, ~number};
  allreduce(both, {.name = buffers_operation, .op = ReduceOp::max, .process_set = set});
  return both[0] == ~both[1];
}

}  // namespace

void broadcast_buffers(::torch::nn::Module& module, int root, const ProcessSet& set) {
  require_root("broadcast_buffers", root, set);
  const NamedParameters buffers = distinct_buffers(module);
  const std::vector<Item> items = items_of(buffers);
  const at::NoGradGuard no_grad;
  // The ranks agree before anything is sent: an operation that only some ranks submit would stay
  // pending.
  if (!all_have(digest_of(items), set))
    require_agreement(buffers_operation, "The buffers", items, set);
  std::vector<PackedBuffers> packs = pack(buffers, /*fill=*/rank() == root);
  submit(packs, root, set);
  for (PackedBuffers& pack : packs) {
    pack.arrived.get();
    if (rank() == root) continue;
    for (std::size_t i = 0; i < pack.buffers.size(); ++i) pack.buffers[i].copy_(pack.slice(i));
  }
}

}  // namespace kolo
