// SPDX-License-Identifier: Apache-2.0
// Memory that several processes map, as a whole or divided into blocks.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "node/file_descriptor.hpp"
#include "node/not_inherited.hpp"

namespace kolo::internal::node {

/// The memory has no name in any file system: it vanishes with the last process that maps it,
/// however that process ends, and does not count against limits of /dev/shm. A forked child loses
/// it: see NotInherited.
class SharedMemory {
 public:
  using InChild = NotInherited::InChild;

  SharedMemory() = default;
  /// Creates zeroed memory. All of it is reserved, so that writing to it cannot fail later. Asks
  /// for huge pages, but works without them. Throws BackendError.
  [[nodiscard]] static SharedMemory create(std::size_t bytes);
  /// Creates zeroed memory without reserving it: unused pages take no memory. See `reserve`.
  [[nodiscard]] static SharedMemory create_sparse(std::size_t bytes,
                                                  InChild in_child = InChild::zeros);
  /// Maps the memory of the process that sent `fd`, which may then be closed. Throws BackendError.
  [[nodiscard]] static SharedMemory map(const FileDescriptor& fd);
  /// The same, for memory that must have `bytes` bytes.
  [[nodiscard]] static SharedMemory map(const FileDescriptor& fd, std::size_t bytes);

  /// Makes sure that these pages can be written. False if the host or the control group of this
  /// process has no memory for them; errno then has the reason.
  [[nodiscard]] bool reserve(std::size_t offset, std::size_t bytes) const;
  /// Returns the pages to the kernel; they are zeros afterwards.
  void give_back(std::size_t offset, std::size_t bytes) const;

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return data_.get_deleter().bytes; }
  /// The descriptor, for memory that this process created.
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// True in a forked child, which has lost the memory.
  [[nodiscard]] bool lost() const { return data_.get_deleter().not_inherited.lost(); }

 private:
  struct Unmap {
    Unmap() noexcept {}  // NOLINT(modernize-use-equals-default): unknown to unique_ptr here
    std::size_t bytes = 0;
    NotInherited not_inherited{};
    void operator()(std::byte* data);
  };

  SharedMemory(FileDescriptor fd, std::size_t bytes, InChild in_child);
  void map(int fd, std::size_t bytes, InChild in_child, int kept_fd);

  FileDescriptor fd_;
  std::unique_ptr<std::byte, Unmap> data_;
};

/// Memory of one rank that the other ranks of its host can access, divided into blocks. Blocks are
/// whole pages, allocated first fit; freed blocks merge with free neighbors. Thread-safe. A forked
/// child sees its parent's blocks until it writes to a page, and zeros once they are given back. No
/// other process sees the child's writes, and the child cannot allocate.
class SharedHeap {
 public:
  /// The heap grows to at most `bytes` and takes memory only for its blocks. Throws BackendError.
  explicit SharedHeap(std::size_t bytes);

  /// Aligned to pages. Returns null if the heap has no room; throws BackendError if there is no
  /// memory.
  [[nodiscard]] void* allocate(std::size_t bytes);
  /// `bytes` is the size that was passed to `allocate`.
  void deallocate(void* block, std::size_t bytes) noexcept;

  [[nodiscard]] bool contains(const void* place) const;
  [[nodiscard]] std::span<std::byte> memory() const { return {memory_.data(), memory_.size()}; }
  [[nodiscard]] int fd() const { return memory_.fd(); }

 private:
  /// Removes a free block and returns its offset; nothing if none is large enough.
  [[nodiscard]] std::optional<std::size_t> take(std::size_t size);
  /// Requires that `mutex_` is held.
  void put_back(std::size_t offset, std::size_t size);

  SharedMemory memory_;
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  // offset to size of free blocks; none are adjacent
};

/// Allocates private memory with an alignment of 64, and touches its pages, so that the kernel
/// cannot run out of memory when they are written later. Throws BackendError if there is no memory.
[[nodiscard]] void* allocate_reserved(std::size_t bytes);

}  // namespace kolo::internal::node
