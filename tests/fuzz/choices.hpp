// An input as a row of choices.
#pragma once

#include <cstddef>

#include "target.hpp"

namespace kolo::fuzz {

/// Bytes of the input, one after the other, and zeros after its end.
class Choices {
 public:
  explicit Choices(Bytes bytes) : left_(bytes) {}

  [[nodiscard]] bool done() const { return left_.empty(); }
  std::size_t next() {
    if (left_.empty()) return 0;
    const std::size_t value = left_.front();
    left_ = left_.subspan(1);
    return value;
  }
  std::size_t next_two() {
    const std::size_t high = next();
    return high << 8 | next();
  }

 private:
  Bytes left_;
};

}  // namespace kolo::fuzz
