// SPDX-License-Identifier: Apache-2.0
// The memory that this process may use: limited by its host and its control groups.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

namespace kolo::internal::node {

/// The memory that can still be used before the kernel kills a process. Free swap counts, because
/// the kernel can move unused pages there, unless a control group limits swap.
struct AvailableMemory {
  std::size_t bytes;       // the largest number if not known
  std::string limited_by;  // "the host", or a file of a control group
};

// `root` is the directory of /proc and /sys. Tests pass their own.

/// Reads control groups of versions 1 and 2, including all groups above the process's own.
[[nodiscard]] AvailableMemory available_memory(const std::string& root = "");

struct MemoryLimits {
  std::size_t memory;         // the host's, or the lowest limit of a control group
  std::size_t address_space;  // the bytes that this process can still map
  // The size of the largest file that this process may create. Shared memory is a file.
  std::size_t file_size = std::numeric_limits<std::size_t>::max();
};
[[nodiscard]] MemoryLimits memory_limits(const std::string& root = "");

/// The size of each rank's heap. Every rank of a host maps the heaps of all ranks: together they
/// are as large as the memory, and leave half of the address space.
[[nodiscard]] std::size_t heap_bytes(const MemoryLimits& limits, int ranks_of_host);

}  // namespace kolo::internal::node
