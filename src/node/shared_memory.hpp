// SPDX-License-Identifier: Apache-2.0
// Memory that several processes map, as a whole or in blocks.
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

/// Has no name in any file system: it is gone with the last process that maps it, however that
/// ends, and no limit of /dev/shm concerns it. A forked child has none of it: see NotInherited.
class SharedMemory {
 public:
  using InChild = NotInherited::InChild;

  SharedMemory() = default;
  /// Zeros. All of it is reserved, so that writing to it cannot fail later. Huge pages are asked
  /// for; nothing depends on them. Throws BackendError.
  [[nodiscard]] static SharedMemory create(std::size_t bytes);
  /// Zeros, none of them reserved yet: what is not used takes no memory. See `reserve`.
  [[nodiscard]] static SharedMemory create_sparse(std::size_t bytes,
                                                  InChild in_child = InChild::zeros);
  /// Maps the memory of the process that sent `fd`, which may then be closed. Throws BackendError.
  [[nodiscard]] static SharedMemory map(const FileDescriptor& fd);
  /// The same; it must have so many bytes.
  [[nodiscard]] static SharedMemory map(const FileDescriptor& fd, std::size_t bytes);

  /// Makes sure that these pages can be written. False if the host, or the control group of this
  /// process, has no memory for them; errno has the reason.
  [[nodiscard]] bool reserve(std::size_t offset, std::size_t bytes) const;
  /// Gives the pages back; they are zeros again.
  void give_back(std::size_t offset, std::size_t bytes) const;

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return data_.get_deleter().bytes; }
  /// Of memory that was created here.
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// True in a forked child.
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

/// Memory of one rank that the others of its host can access, handed out in blocks. These are whole
/// pages, first fit; what is given back joins its neighbors. Thread-safe. A forked
/// child sees its parent's blocks until it writes a page, and zeros once they are given back; what
/// it writes no other process sees. It allocates no more.
class SharedHeap {
 public:
  /// At most `bytes`; takes memory only for what is handed out. Throws BackendError.
  explicit SharedHeap(std::size_t bytes);

  /// Aligned to pages. Null if the heap has no room; throws BackendError if there is no memory.
  [[nodiscard]] void* allocate(std::size_t bytes);
  /// `bytes` as it was asked for.
  void deallocate(void* block, std::size_t bytes) noexcept;

  [[nodiscard]] bool contains(const void* place) const;
  [[nodiscard]] std::span<std::byte> memory() const { return {memory_.data(), memory_.size()}; }
  [[nodiscard]] int fd() const { return memory_.fd(); }

 private:
  /// The offset of a block that is free no more; nothing if none is large enough.
  [[nodiscard]] std::optional<std::size_t> take(std::size_t size);
  /// With the lock held.
  void put_back(std::size_t offset, std::size_t size);

  SharedMemory memory_;
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  // offset to bytes; no two of them touch
};

/// Ordinary memory, as of `operator new` with an alignment of 64, whose pages are there: the kernel
/// does not have to end a process when it writes to them. Throws BackendError if there is no
/// memory.
[[nodiscard]] void* allocate_reserved(std::size_t bytes);

}  // namespace kolo::internal::node
