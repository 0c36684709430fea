// SPDX-License-Identifier: Apache-2.0
// The operation types and the properties by which they differ, and an operation as one rank submits
// it, with all properties on which the ranks must agree.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/rank_set.hpp"
#include "kolo/types.hpp"

namespace kolo::internal {

enum class OperationType : std::uint8_t {
  allreduce,
  reducescatter,
  allgather,
  alltoall,
  broadcast,
  broadcast_string,
  barrier,
  join,
  add_process_set,
  remove_process_set,
  last = remove_process_set,
};

/// The ranks without which an operation is undefined. The other ranks of the process set may have
/// joined.
enum class NeededRanks : std::uint8_t { none, root, all };

struct OperationTraits {
  OperationType type{};
  std::string_view name{};  // in messages and files
  bool fuses = false;       // several operations may travel in one batch
  bool reduces = false;     // does arithmetic, which the dtype must support
  bool allocates = false;   // an allocator provides the result's memory once its size is known
  bool bytes_may_differ = false;  // between ranks
  bool is_reserved = false;       // has a key of its own, without a name from the program
  bool splits = false;      // may be executed for some of the elements at a time; adasum may not
  bool root_sends = false;  // only the root's input is read
  NeededRanks needs = NeededRanks::none;
};

/// The traits of the operation types, in the order of the enumerators.
inline constexpr auto operation_table = std::to_array<OperationTraits>({
    {.type = OperationType::allreduce,
     .name = "allreduce",
     .fuses = true,
     .reduces = true,
     .splits = true},
    {.type = OperationType::reducescatter,
     .name = "reducescatter",
     .fuses = true,
     .reduces = true,
     .needs = NeededRanks::all},
    {.type = OperationType::allgather,
     .name = "allgather",
     .fuses = true,
     .allocates = true,
     .bytes_may_differ = true},
    {.type = OperationType::alltoall,
     .name = "alltoall",
     .allocates = true,
     .bytes_may_differ = true,
     .needs = NeededRanks::all},
    {.type = OperationType::broadcast,
     .name = "broadcast",
     .fuses = true,
     .bytes_may_differ = true,
     .splits = true,
     .root_sends = true,
     .needs = NeededRanks::root},
    {.type = OperationType::broadcast_string,
     .name = "string broadcast",
     .bytes_may_differ = true,
     .root_sends = true,
     .needs = NeededRanks::root},
    {.type = OperationType::barrier, .name = "barrier"},
    {.type = OperationType::join, .name = "join", .is_reserved = true},
    {.type = OperationType::add_process_set, .name = "add_process_set", .is_reserved = true},
    {.type = OperationType::remove_process_set, .name = "remove_process_set", .is_reserved = true},
});

static_assert([] {
  for (std::size_t i = 0; i < operation_table.size(); ++i)
    if (operation_table[i].type != static_cast<OperationType>(i)) return false;
  return operation_table.back().type == OperationType::last;
}());

[[nodiscard]] constexpr const OperationTraits& traits_of(OperationType type) {
  return operation_table[static_cast<std::size_t>(type)];
}

/// Stands for the first length of a shape if ranks may differ in it, as in allgather and alltoall.
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
/// The same for work that a CUDA graph records, and for work that prepares for that (GraphWarmUp).
inline constexpr Device gpu_of_graph{DeviceType::cuda, -2};
inline constexpr Device gpu_before_graph{DeviceType::cuda, -3};
/// True for both: NCCL has other communicators for them.
[[nodiscard]] constexpr bool is_for_graphs(Device device) {
  return device == gpu_of_graph || device == gpu_before_graph;
}

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
  Device device{};           // the CPU, `own_gpu`, or one of a graph
  std::int64_t step = 0;     // the number of the optimizer step that submitted the operation
  RankSet ranks{};           // the members of the process set to add
  std::int64_t removed = 0;  // the process set to be removed

  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

}  // namespace kolo::internal
