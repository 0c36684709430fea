// SPDX-License-Identifier: Apache-2.0
#include "session/startup/host_memory.hpp"

#include "backend/internode/internode_backend.hpp"
#include "backend/shm/shm_backend.hpp"
#include "node/status_page.hpp"
#include "session/engine/shared_board.hpp"
#include "transport/shm_transport.hpp"

namespace kolo::internal::session {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t line = 64;

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

HostMemory lay_out_memory(bool several_hosts) {
  HostMemory memory{};
  // Batches between hosts take larger pieces.
  memory.slot_bytes = several_hosts ? backend::InterNodeBackend::default_slot_bytes
                                    : backend::ShmBackend::default_piece_bytes;
  memory.backend = rounded_up(transport::ShmTransport::bytes_needed(), page);
  memory.board =
      rounded_up(memory.backend + backend::ShmBackend::bytes_needed(memory.slot_bytes), line);
  memory.status = memory.board + sizeof(SharedPlanBoard::Word);
  memory.bytes = memory.status + sizeof(node::StatusPage);
  return memory;
}

}  // namespace kolo::internal::session
