// SPDX-License-Identifier: Apache-2.0
// Private memory of other processes, which the kernel reads and writes for those that it permits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "node/other_process.hpp"

namespace kolo::internal::node {

// Addresses are those of the other process. These return false if the process has ended, and throw
// BackendError if the memory cannot be read or written.

[[nodiscard]] bool read_memory(const OtherProcess& process, std::uint64_t from,
                               std::span<std::byte> to);
[[nodiscard]] bool write_memory(const OtherProcess& process, std::span<const std::byte> from,
                                std::uint64_t to);

/// A word that other processes may read and write to see whether they can: it has a known value.
[[nodiscard]] std::uint64_t probed_address() noexcept;
/// `address`: what `probed_address` is in the other process.
[[nodiscard]] bool can_access_memory(const OtherProcess& process, std::uint64_t address) noexcept;

/// False if other processes certainly cannot read all of this memory of this process, such as a
/// device's. Looks at its first and last page only.
[[nodiscard]] bool is_accessible(std::span<const std::byte> memory) noexcept;

}  // namespace kolo::internal::node
