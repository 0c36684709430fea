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

/// The memory of one tensor of a list, and the tensor's position in the list.
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

/// The positions of two tensors that overlap, the lower first; nothing if no two do.
using Overlap = std::optional<std::pair<std::size_t, std::size_t>>;

/// Finds two tensors of which one is written to memory that the other reads or writes. The same
/// position may both read and write its memory.
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
