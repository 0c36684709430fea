// SPDX-License-Identifier: Apache-2.0
// The operation types and the properties by which they differ.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

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

/// The ranks of the process set without which an operation is undefined. The others may have
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
  NeededRanks needs = NeededRanks::none;
};

/// In the order of the enumerators.
inline constexpr auto operation_table = std::to_array<OperationTraits>({
    {.type = OperationType::allreduce, .name = "allreduce", .fuses = true, .reduces = true},
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
     .needs = NeededRanks::root},
    {.type = OperationType::broadcast_string,
     .name = "string broadcast",
     .bytes_may_differ = true,
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

}  // namespace kolo::internal
