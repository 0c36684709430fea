// SPDX-License-Identifier: Apache-2.0
// The ranks of one host: each sees the others' memory, can wake them, and learns of their end.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "node/doorbell.hpp"
#include "node/fd_exchange.hpp"
#include "node/other_process.hpp"
#include "node/shared_memory.hpp"

namespace kolo::internal::node {

/// One rank of the host, as the others reach it. Owns nothing.
struct LocalPeer {
  std::byte* memory;  // a part of its segment, aligned to cache lines, zeros at first
  const Doorbell* bell;
  std::span<std::byte> heap{};            // what it shares of its tensors; may be empty
  const OtherProcess* process = nullptr;  // null if it is this process
};

/// The memory that a rank shares with the other ranks of its host. Each rank creates it before they
/// connect, so that a rank that cannot create it reports the error, and no other rank waits.
class OwnMemory {
 public:
  /// `bytes` of memory that the others map, and a heap that can grow to `heap_bytes` and takes
  /// memory as it is used. `bytes` is the same on all ranks of the host. Throws BackendError.
  OwnMemory(std::size_t bytes, std::size_t heap_bytes);
  /// With the heap of an earlier session, in which this rank still has tensors.
  OwnMemory(std::size_t bytes, std::shared_ptr<SharedHeap> heap);

  [[nodiscard]] const std::shared_ptr<SharedHeap>& heap() const { return heap_; }

  /// Where this rank receives the others' descriptors: `FdExchangeGroup::inboxes` has it.
  [[nodiscard]] std::uint64_t inbox() const { return inbox_.number(); }

 private:
  friend class LocalGroup;

  SharedMemory segment_;
  Doorbell::EventFds bell_;
  std::shared_ptr<SharedHeap> heap_;
  FdInbox inbox_{};
};

/// Ranks are known by their index on the host. Thread-safe once made.
class LocalGroup {
 public:
  static constexpr std::chrono::seconds timeout{20};

  /// All ranks of the group at once, when each has made its own memory. `while_waiting` as in
  /// `exchange_fds`. Throws BackendError, also after `timeout`.
  LocalGroup(OwnMemory own, const FdExchangeGroup& group,
             const std::function<void()>& while_waiting);

  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] int size() const { return static_cast<int>(local_peers_.size()); }
  /// Zeros at first, aligned to 4096 bytes.
  [[nodiscard]] std::byte* memory(int index) const {
    return local_peer(index).segment.data() + header_bytes;
  }
  /// Where the rank's heap lies in this process.
  [[nodiscard]] std::span<std::byte> heap(int index) const;
  /// The number of its process, as seen here.
  [[nodiscard]] pid_t process(int index) const;
  /// Null for this rank itself.
  [[nodiscard]] const OtherProcess* other_process(int index) const {
    return index == index_ ? nullptr : &local_peer(index).process;
  }
  /// This rank's. Others may hold it for longer than the local_group lives.
  [[nodiscard]] const std::shared_ptr<SharedHeap>& own_heap() const { return own_heap_; }
  [[nodiscard]] const Doorbell& bell(int index) const { return local_peer(index).bell; }
  [[nodiscard]] const Doorbell& own_bell() const { return bell(index_); }
  /// The part of the second-level caches that each rank has, in bytes. The same on all ranks.
  [[nodiscard]] std::int64_t cache_share() const { return cache_share_; }
  /// Of each rank, the NUMA node that has all processors that it may use; -1: none, or not known.
  /// The same on all ranks.
  [[nodiscard]] const std::vector<int>& numa_nodes() const { return numa_nodes_; }
  /// `Doorbell::watch`, of this rank's.
  void watch(int descriptor) {
    local_peers_[static_cast<std::size_t>(index_)].bell.watch(descriptor);
  }

  /// By which the end of the others' processes can be awaited; they outlive this. Empty where the
  /// kernel has no pidfds.
  [[nodiscard]] std::vector<FileDescriptor> others() const;
  /// Those whose process has ended, however it did.
  [[nodiscard]] std::vector<int> ended() const;

 private:
  // The header before the memory, which it keeps aligned.
  friend class OwnMemory;
  static constexpr std::size_t header_bytes = 4096;

  struct Mapped {
    SharedMemory segment;
    Doorbell bell;
    SharedMemory heap;  // none of this rank itself
    OtherProcess process;
  };

  static Mapped map(ReceivedFds received, std::size_t bytes);
  [[nodiscard]] const Mapped& local_peer(int index) const {
    return local_peers_[static_cast<std::size_t>(index)];
  }

  int index_;
  std::shared_ptr<SharedHeap> own_heap_{};
  std::vector<Mapped> local_peers_{};
  std::int64_t cache_share_ = 0;
  std::vector<int> numa_nodes_{};
};

}  // namespace kolo::internal::node
