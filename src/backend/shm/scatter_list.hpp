// SPDX-License-Identifier: Apache-2.0
// Several ranges of memory that are read or written as one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kolo::internal::backend::shm {

/// A list of ranges of memory that is traversed once, from front to back. `Byte` is std::byte or
/// const std::byte.
template <typename Byte>
class ScatterList {
 public:
  void add(Byte* data, std::int64_t bytes) {
    if (bytes == 0) return;
    ranges_.push_back({data, bytes});
    left_ += bytes;
  }

  [[nodiscard]] std::int64_t left() const { return left_; }

  /// Calls `copy(data, offset, bytes)` for each range within the next `bytes`, and returns their
  /// number, which is lower at the end of the list.
  template <typename Copy>
  std::int64_t advance(std::int64_t bytes, Copy copy) {
    std::int64_t offset = 0;
    bytes = std::min(bytes, left_);
    while (offset < bytes) {
      Range& range = ranges_[next_];
      const std::int64_t part = std::min(range.bytes, bytes - offset);
      copy(range.data, offset, static_cast<std::size_t>(part));
      range.data += part;
      range.bytes -= part;
      if (range.bytes == 0) ++next_;
      offset += part;
    }
    left_ -= bytes;
    return bytes;
  }

 private:
  struct Range {
    Byte* data;
    std::int64_t bytes;
  };

  std::vector<Range> ranges_{};
  std::size_t next_ = 0;
  std::int64_t left_ = 0;
};

}  // namespace kolo::internal::backend::shm
