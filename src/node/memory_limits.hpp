// SPDX-License-Identifier: Apache-2.0
// How much memory this process may use: as much as its host has, and its control groups allow.
#pragma once

#include <cstddef>
#include <string>

namespace kolo::internal::node {

/// How much memory can still be used before the kernel kills a process. Free swap counts, because
/// the kernel can move unused pages there, unless a control group limits swap.
struct AvailableMemory {
  std::size_t bytes;       // the largest number if not known
  std::string limited_by;  // "the host", or a file of a control group
};

// `root` is where /proc and /sys lie; tests have their own.

/// Reads control groups of version 1 and 2, with all groups above the process's own.
[[nodiscard]] AvailableMemory available_memory(const std::string& root = "");

struct MemoryLimits {
  std::size_t memory;         // of the host, or of a control group if that has less
  std::size_t address_space;  // what this process can still map
};
[[nodiscard]] MemoryLimits memory_limits(const std::string& root = "");

/// The size of each rank's heap when every rank of a host maps the heaps of all: together they have
/// as much as the memory, and leave half of the address space.
[[nodiscard]] std::size_t heap_bytes(const MemoryLimits& limits, int ranks_of_host);

}  // namespace kolo::internal::node
