// SPDX-License-Identifier: Apache-2.0
// The backend under test is that of shared memory, with most tensors in shared memory.
// KOLO_TEST_NODES is the layout of NUMA nodes.
#include <cstddef>
#include <memory>
#include <numeric>
#include <vector>

#include "../support/share_memory.hpp"
#include "backend/shm/shm_backend.hpp"
#include "fixture.hpp"
#include "node_layouts.hpp"
#include "tensors.hpp"

namespace kolo::internal::backend {
namespace {

std::vector<node::LocalPeer> local_peers_in(const node::LocalGroup& host) {
  std::vector<node::LocalPeer> local_peers;
  for (int index = 0; index < host.size(); ++index)
    local_peers.push_back(
        {host.memory(index), &host.bell(index), host.heap(index), host.other_process(index)});
  return local_peers;
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

constexpr std::size_t heap_bytes = std::size_t{256} << 20;

/// Allocates every fifth array in private memory, at different positions on different ranks.
ArrayMemory arrays_in(const std::shared_ptr<node::SharedHeap>& heap, int index) {
  return [heap, made = index](std::size_t bytes) mutable -> std::shared_ptr<std::byte> {
    if (made++ % 5 == 0) return nullptr;
    return {static_cast<std::byte*>(heap->allocate(bytes)),
            [heap, bytes](std::byte* block) { heap->deallocate(block, bytes); }};
  };
}

/// Owns what it stands on.
class OnThisHost : public Backend {
 public:
  OnThisHost(MPI_Comm comm, std::int64_t piece_bytes)
      : host_(node::share_memory(comm, ShmBackend::bytes_needed(piece_bytes), heap_bytes)),
        backend_(all_ranks(host_.size()), local_peers_in(host_), host_.index(), piece_bytes, 0,
                 host_.cache_share(), made_up_nodes(KOLO_TEST_NODES, host_.size())) {
    array_memory() = arrays_in(host_.own_heap(), host_.index());
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

std::unique_ptr<Backend> make_backend(MPI_Comm comm, std::int64_t piece_bytes) {
  return std::make_unique<OnThisHost>(comm, piece_bytes);
}

std::int64_t default_piece_bytes() { return ShmBackend::default_piece_bytes; }
std::int64_t large_piece_bytes() { return std::int64_t{1} << 22; }

}  // namespace kolo::internal::backend
