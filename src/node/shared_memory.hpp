// SPDX-License-Identifier: Apache-2.0
// Memory that several processes map, as a whole or in blocks.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "node/file_descriptor.hpp"

namespace kolo::internal::node {

/// Has no name in any file system: it is gone with the last process that maps it, however that
/// ends, and no limit of /dev/shm concerns it.
class SharedMemory {
 public:
  SharedMemory() = default;
  /// Zeros. All of it is reserved, so that writing to it cannot fail later. Huge pages are asked
  /// for; nothing depends on them. Throws BackendError.
  [[nodiscard]] static SharedMemory create(std::size_t bytes);
  /// Zeros, none of them reserved yet: what is not used takes no memory. See `reserve`.
  [[nodiscard]] static SharedMemory create_sparse(std::size_t bytes);
  /// Another's, of which `fd` came here; it must have as many bytes. Throws BackendError.
  [[nodiscard]] static SharedMemory map(FileDescriptor fd, std::size_t bytes);

  /// Makes sure that these pages can be written. False if there is no memory for them.
  [[nodiscard]] bool reserve(std::size_t offset, std::size_t bytes) const;
  /// Gives the pages back; they are zeros again.
  void give_back(std::size_t offset, std::size_t bytes) const;

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return data_.get_deleter().bytes; }
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* data) const;
  };

  SharedMemory(FileDescriptor fd, std::size_t bytes);

  FileDescriptor fd_;
  std::unique_ptr<std::byte, Unmap> data_;
};

/// Memory of one rank that the others of its host can read, handed out in blocks. These are whole
/// pages, first fit; what is given back joins its neighbors. Thread-safe.
class SharedHeap {
 public:
  /// At most `bytes`; takes memory only for what is handed out. Throws BackendError.
  explicit SharedHeap(std::size_t bytes);

  /// Aligned to pages. Null if there is no room.
  [[nodiscard]] void* allocate(std::size_t bytes);
  /// `bytes` as it was asked for.
  void deallocate(void* block, std::size_t bytes) noexcept;

  [[nodiscard]] bool contains(const void* place) const;
  [[nodiscard]] std::span<std::byte> memory() const { return {memory_.data(), memory_.size()}; }
  [[nodiscard]] int fd() const { return memory_.fd(); }

 private:
  SharedMemory memory_;
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  // offset to bytes; no two of them touch
};

}  // namespace kolo::internal::node
