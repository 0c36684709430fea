// SPDX-License-Identifier: Apache-2.0
// Finds tensors of a list that share memory.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "kolo/export.hpp"
#include "kolo/tensor.hpp"

namespace kolo::internal {

/// The memory of the tensor at a position of a list.
struct MemoryUse {
  const std::byte* begin;
  const std::byte* end;
  std::size_t position;
  bool written;

  static MemoryUse of(const ConstTensorView& tensor, std::size_t position, bool written) {
    return of(tensor.data(), tensor.elements(), tensor.dtype(), position, written);
  }
  static MemoryUse of(const void* data, std::int64_t elements, DType dtype, std::size_t position,
                      bool written) {
    const auto* begin = static_cast<const std::byte*>(data);
    return {begin, begin + static_cast<std::size_t>(elements) * size_of(dtype), position, written};
  }
};

/// Two positions, the lower first.
using Overlap = std::optional<std::pair<std::size_t, std::size_t>>;

/// Two positions, one of which writes memory that the other reads or writes. A position may read
/// the memory that it writes.
[[nodiscard]] KOLO_EXPORT Overlap find_overlap(std::vector<MemoryUse> uses);

/// The same for `count` tensors that are all written; `use_of` returns the MemoryUse of a position.
/// Allocates nothing if the tensors lie in memory in the order of the list, or in reverse.
template <typename UseOf>
[[nodiscard]] Overlap find_overlap_of_written(std::size_t count, UseOf use_of) {
  const std::less<> before;  // unlike `<`, also orders pointers into different arrays
  const std::byte* lowest = nullptr;
  const std::byte* highest = nullptr;
  bool ascending = true;
  bool descending = true;
  for (std::size_t i = 0; i < count; ++i) {
    const MemoryUse use = use_of(i);
    if (use.begin == use.end) continue;
    if (highest != nullptr) {
      ascending = ascending && !before(use.begin, highest);
      descending = descending && !before(lowest, use.end);
    }
    lowest = use.begin;
    highest = use.end;
  }
  if (ascending || descending) return std::nullopt;
  std::vector<MemoryUse> uses;
  uses.reserve(count);
  for (std::size_t i = 0; i < count; ++i) uses.push_back(use_of(i));
  return find_overlap(std::move(uses));
}

}  // namespace kolo::internal
