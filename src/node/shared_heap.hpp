// Memory of one rank that the others of its host can read, handed out in blocks.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <span>

#include "node/shared_memory.hpp"

namespace kolo::node {

/// Blocks are whole pages, first fit; what is given back joins its neighbours. Thread-safe.
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

}  // namespace kolo::node
