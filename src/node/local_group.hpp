// SPDX-License-Identifier: Apache-2.0
// The ranks of one host. Each maps the others' memory, can wake them, and notices their end.
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

/// A rank of this host, as another rank reaches it. Owns nothing.
struct LocalPeer {
  std::byte* memory;  // in the rank's segment: aligned to cache lines, initially zeros
  const Doorbell* bell;
  std::span<std::byte> heap{};            // the memory of its shared tensors; may be empty
  const OtherProcess* process = nullptr;  // null for this rank itself
};

/// The memory that a rank shares with the other ranks of its host. Each rank creates it before the
/// ranks connect: a rank that cannot create it reports the error then, while no other rank waits.
class OwnMemory {
 public:
  /// `bytes` of memory that other ranks map, and a heap that grows to `heap_bytes` and takes memory
  /// only as it is used. `bytes` must be the same on all ranks of the host. Throws BackendError.
  OwnMemory(std::size_t bytes, std::size_t heap_bytes);
  /// Keeps the heap of an earlier session, in which this rank still has tensors.
  OwnMemory(std::size_t bytes, std::shared_ptr<SharedHeap> heap);

  [[nodiscard]] const std::shared_ptr<SharedHeap>& heap() const { return heap_; }

  /// The number of this rank's inbox, for `FdExchangeGroup::inboxes`.
  [[nodiscard]] std::uint64_t inbox() const { return inbox_.number(); }

 private:
  friend class LocalGroup;

  SharedMemory segment_;
  Doorbell::EventFds bell_;
  std::shared_ptr<SharedHeap> heap_;
  FdInbox inbox_{};
};

/// The ranks of one host, and their memory, bells and processes. Identifies ranks by their index on
/// the host. Thread-safe once constructed.
class LocalGroup {
 public:
  static constexpr std::chrono::seconds timeout{20};

  /// All ranks of the group construct it at the same time, after each has created its own memory.
  /// `while_waiting` is that of `exchange_fds`. Throws BackendError, also after `timeout`.
  LocalGroup(OwnMemory own, const FdExchangeGroup& group,
             const std::function<void()>& while_waiting);

  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] int size() const { return static_cast<int>(local_peers_.size()); }
  /// The rank's memory: initially zeros, aligned to 4096 bytes.
  [[nodiscard]] std::byte* memory(int index) const {
    return local_peer(index).segment.data() + header_bytes;
  }
  /// The address range at which this process maps the rank's heap.
  [[nodiscard]] std::span<std::byte> heap(int index) const;
  /// The rank's process, by its number in this PID namespace.
  [[nodiscard]] pid_t process(int index) const;
  /// Null for this rank itself.
  [[nodiscard]] const OtherProcess* other_process(int index) const {
    return index == index_ ? nullptr : &local_peer(index).process;
  }
  /// The heap of this rank. Other owners may keep it beyond the lifetime of the group.
  [[nodiscard]] const std::shared_ptr<SharedHeap>& own_heap() const { return own_heap_; }
  [[nodiscard]] const Doorbell& bell(int index) const { return local_peer(index).bell; }
  [[nodiscard]] const Doorbell& own_bell() const { return bell(index_); }
  /// Each rank's share of the second-level caches, in bytes; the same on all ranks.
  [[nodiscard]] std::int64_t cache_share() const { return cache_share_; }
  /// For each rank, the NUMA node of all processors that it may use; -1: none, or not known. The
  /// same on all ranks.
  [[nodiscard]] const std::vector<int>& numa_nodes() const { return numa_nodes_; }
  /// Calls `Doorbell::watch` on this rank's bell.
  void watch(int descriptor) {
    local_peers_[static_cast<std::size_t>(index_)].bell.watch(descriptor);
  }

  /// Copies of the pidfds of the other ranks' processes, which signal the end of a process and
  /// outlive the group. Empty if the kernel has no pidfds.
  [[nodiscard]] std::vector<FileDescriptor> others() const;
  /// The indices of the ranks whose process has ended, for whatever reason.
  [[nodiscard]] std::vector<int> ended() const;

 private:
  // The header precedes the memory, which `memory` promises to align to 4096 bytes.
  friend class OwnMemory;
  static constexpr std::size_t header_bytes = 4096;

  struct Mapped {
    SharedMemory segment;
    Doorbell bell;
    SharedMemory heap;  // empty for this rank itself
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
