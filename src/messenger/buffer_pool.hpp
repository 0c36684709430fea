// SPDX-License-Identifier: Apache-2.0
// Buffers for the bytes of messages.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace kolo::internal::messenger {

struct Buffer {
  std::unique_ptr<std::byte[]> bytes{};
  std::size_t size = 0;

  [[nodiscard]] std::byte* data() const { return bytes.get(); }
};

/// Keeps long buffers for later messages: the system has to clear each page of a new one, which
/// takes as long as a fast network takes to fill it. Not thread-safe.
class BufferPool {
 public:
  /// Keeps at most so many bytes.
  explicit BufferPool(std::size_t most) : most_(most) {}

  /// A buffer of at least `bytes`, whose contents are unspecified.
  [[nodiscard]] Buffer take(std::size_t bytes) {
    auto best = free_.end();
    if (bytes < shortest) return make(bytes);
    for (auto one = free_.begin(); one != free_.end(); ++one)
      if (one->size >= bytes && (best == free_.end() || one->size < best->size)) best = one;
    if (best == free_.end()) return make(bytes);
    Buffer buffer = std::move(*best);
    free_.erase(best);
    kept_ -= buffer.size;
    return buffer;
  }
  void give_back(Buffer buffer) {
    if (buffer.size < shortest || buffer.size > most_) return;
    // The oldest make room: messages have changed their sizes.
    while (kept_ + buffer.size > most_) {
      kept_ -= free_.front().size;
      free_.erase(free_.begin());
    }
    kept_ += buffer.size;
    free_.push_back(std::move(buffer));
  }

 private:
  static constexpr std::size_t shortest = 64 << 10;  // memory for less is reused anyway

  static Buffer make(std::size_t bytes) {
    return {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
  }

  std::size_t most_;
  std::size_t kept_ = 0;
  std::vector<Buffer> free_{};  // the oldest first
};

}  // namespace kolo::internal::messenger
