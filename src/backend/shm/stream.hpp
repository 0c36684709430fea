// Memory in several places, read or written as if it were in one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace kolo::backend::shm {

/// `Byte` is std::byte or const std::byte. Goes forward only.
template <typename Byte>
class Stream {
 public:
  void add(Byte* data, std::int64_t bytes) {
    if (bytes == 0) return;
    places_.push_back({data, bytes});
    left_ += bytes;
  }

  [[nodiscard]] std::int64_t left() const { return left_; }

  /// Calls `copy(place, offset, bytes)` for what lies in the next `bytes`, as far as there are any.
  template <typename Copy>
  std::int64_t advance(std::int64_t bytes, Copy copy) {
    std::int64_t offset = 0;
    bytes = std::min(bytes, left_);
    while (offset < bytes) {
      Place& place = places_[next_];
      const std::int64_t part = std::min(place.bytes, bytes - offset);
      copy(place.data, offset, static_cast<std::size_t>(part));
      place.data += part;
      place.bytes -= part;
      if (place.bytes == 0) ++next_;
      offset += part;
    }
    left_ -= bytes;
    return bytes;
  }

 private:
  struct Place {
    Byte* data;
    std::int64_t bytes;
  };

  std::vector<Place> places_{};
  std::size_t next_ = 0;
  std::int64_t left_ = 0;
};

}  // namespace kolo::backend::shm
