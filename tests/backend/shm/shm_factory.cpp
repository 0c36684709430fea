// SPDX-License-Identifier: Apache-2.0
// The backend under test is that of shared memory, with most tensors in shared memory.
// KOLO_TEST_NODES is the layout of NUMA nodes.
#include <cstddef>
#include <memory>
#include <numeric>
#include <vector>

#include "../../support/share_memory.hpp"
#include "../fixture.hpp"
#include "../tensors.hpp"
#include "backend/shm/shm_backend.hpp"
#include "node_layouts.hpp"

#ifndef KOLO_TEST_HEAP_BYTES
#define KOLO_TEST_HEAP_BYTES 0
#endif

namespace kolo::internal::backend {
namespace {

constexpr std::size_t heap_bytes = KOLO_TEST_HEAP_BYTES;
constexpr bool shares_tensors = heap_bytes > 0;

std::vector<node::LocalPeer> local_peers_in(const node::LocalGroup& host) {
  std::vector<node::LocalPeer> local_peers;
  for (int index = 0; index < host.size(); ++index) {
    node::LocalPeer& peer =
        local_peers.emplace_back(node::LocalPeer{host.memory(index), &host.bell(index)});
    if (!shares_tensors) continue;
    peer.heap = host.heap(index);
    peer.process = host.other_process(index);
  }
  return local_peers;
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// Puts one of five arrays into private memory, not the same one on all ranks.
ArrayMemory arrays_in(const std::shared_ptr<node::SharedHeap>& heap, int index) {
  return [heap, made = index](std::size_t bytes) mutable -> std::shared_ptr<std::byte> {
    if (made++ % 5 == 0) return nullptr;
    return {static_cast<std::byte*>(heap->allocate(bytes)),
            [heap, bytes](std::byte* block) { heap->deallocate(block, bytes); }};
  };
}

/// The backend and the shared memory that it uses.
class OnThisHost : public Backend {
 public:
  OnThisHost(MPI_Comm comm, std::int64_t piece_bytes)
      : host_(node::share_memory(comm, ShmBackend::bytes_needed(piece_bytes),
                                 shares_tensors ? heap_bytes : 4096)),
        backend_(all_ranks(host_.size()), local_peers_in(host_), host_.index(), piece_bytes, 0,
                 shares_tensors ? host_.cache_share() : ShmBackend::default_cache_share,
                 made_up_nodes(KOLO_TEST_NODES, host_.size())) {
    if (shares_tensors) array_memory() = arrays_in(host_.own_heap(), host_.index());
  }
  ~OnThisHost() override { array_memory() = nullptr; }
  OnThisHost(const OnThisHost&) = delete;
  OnThisHost& operator=(const OnThisHost&) = delete;

  [[nodiscard]] std::unique_ptr<Execution> start(Batch batch) override {
    return backend_.start(std::move(batch));
  }

 private:
  node::LocalGroup host_;
  ShmBackend backend_;
};

}  // namespace

std::vector<std::string> variants(int /*ranks*/) { return {""}; }

std::unique_ptr<Backend> make_backend(MPI_Comm comm, std::int64_t piece_bytes,
                                      std::size_t /*variant*/) {
  return std::make_unique<OnThisHost>(comm, piece_bytes);
}

std::int64_t default_piece_bytes() { return ShmBackend::default_piece_bytes; }
std::int64_t large_piece_bytes() { return std::int64_t{1} << 22; }

}  // namespace kolo::internal::backend
