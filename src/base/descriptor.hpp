// SPDX-License-Identifier: Apache-2.0
// An operation as one rank submits it: all properties on which the ranks must agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "base/operation_types.hpp"
#include "base/rank_set.hpp"
#include "kolo/types.hpp"

namespace kolo::internal {

/// In place of the first length of a shape where ranks may differ in it: allgather and alltoall.
inline constexpr std::int64_t any_length = std::numeric_limits<std::int64_t>::min();

/// Maximum number of elements of a tensor, and of all tensors of an operation. The limit keeps
/// counts of elements and of bytes within an int64.
inline constexpr std::int64_t max_tensor_elements = std::int64_t{1} << 59;

/// Maximum length of a name: one message may carry thousands of them, and its size is limited.
inline constexpr std::size_t max_name_bytes = 64 << 10;

/// The product of the lengths. Lengths of 0 and a first `any_length` count as 1, so that products
/// of some of the lengths fit too. Returns nothing if a length is negative or the product exceeds
/// `max_tensor_elements`.
[[nodiscard]] constexpr std::optional<std::int64_t> extent_of(
    std::span<const std::int64_t> lengths) {
  std::int64_t extent = 1;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] == 0 || (i == 0 && lengths[i] == any_length)) continue;
    if (lengths[i] < 0 || extent > max_tensor_elements / lengths[i]) return std::nullopt;
    extent *= lengths[i];
  }
  return extent;
}

/// Replaces a GPU's index in descriptors: indices differ between ranks, and descriptors must match.
inline constexpr Device own_gpu{DeviceType::cuda, -1};

struct TensorSpec {
  DType dtype = DType::u8;
  Shape shape{};

  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

/// Fields that an operation does not use keep their defaults, so that `==` compares all that must
/// match.
struct Descriptor {
  OperationType type = OperationType::barrier;
  std::vector<TensorSpec> tensors{};  // more than one: a group
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;
  double postscale = 1.0;
  Compression compression = Compression::none;
  AverageOver average_over = AverageOver::all;
  bool alone = false;        // never fused with other operations
  int root = -1;             // a rank of the world
  Device device{};           // the CPU or `own_gpu`
  std::int64_t step = 0;     // the number of the optimizer step that submitted the operation
  RankSet ranks{};           // the members of the process set to add
  std::int64_t removed = 0;  // the process set to be removed

  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

}  // namespace kolo::internal
