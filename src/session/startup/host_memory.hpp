// SPDX-License-Identifier: Apache-2.0
// What lies where in the memory that each rank shows its host.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kolo::internal::session {

/// The rings of the transport, what the backend needs, the board's word, the status page: the same
/// on all ranks of a host. Offsets in bytes.
struct HostMemory {
  std::size_t rings = 0;
  std::size_t backend;
  std::size_t board;
  std::size_t status;
  std::size_t bytes;        // of it all
  std::int64_t slot_bytes;  // of the backend
};

[[nodiscard]] HostMemory lay_out_memory(bool several_hosts);

}  // namespace kolo::internal::session
