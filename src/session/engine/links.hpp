// SPDX-License-Identifier: Apache-2.0
// What connects this rank with the others: a way for control messages, and one for data.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "base/failure.hpp"
#include "negotiation/replay/board.hpp"
#include "node/shared_memory.hpp"
#include "session/engine/status_board.hpp"
#include "transport/transport.hpp"

namespace kolo::internal::session {

/// Owns all of it, and what it stands on. The seam between the engine and MPI.
class Links {
 public:
  virtual ~Links() = default;
  [[nodiscard]] virtual transport::Transport& transport() = 0;
  [[nodiscard]] virtual backend::Backend& backend() = 0;
  /// This rank's. Thread-safe.
  [[nodiscard]] virtual const node::Doorbell& bell() const = 0;
  /// True while messages or data may arrive without a ring, so that the driver has to poll.
  [[nodiscard]] virtual bool must_poll() const = 0;
  /// True if data comes over a network that rings, but a driver that polls a while instead takes
  /// the processor from no other rank.
  [[nodiscard]] virtual bool has_processor_to_poll() const { return false; }
  /// For the replay of plans; null unless all ranks see each other's memory.
  [[nodiscard]] virtual negotiation::PlanBoard* board() { return nullptr; }
  /// The name of what carries data: shm, mpi, fabric, shm+mpi or shm+fabric.
  [[nodiscard]] virtual std::string data_path() const = 0;
  /// Memory that the other ranks of this host read where it lies; null if there is none.
  [[nodiscard]] virtual std::shared_ptr<node::SharedHeap> heap() const { return nullptr; }
  /// The status pages of the ranks of this host; none if they share no memory.
  [[nodiscard]] virtual std::vector<StatusBoard::Seat> seats() const { return {}; }
  /// By which the end of their processes can be awaited, after the session too.
  [[nodiscard]] virtual std::vector<node::FileDescriptor> other_processes() const { return {}; }
  /// True while MPI reads and writes the memory of batches.
  [[nodiscard]] virtual bool mpi_has_batches() { return false; }
  /// The session has failed. Nothing is awaited any more, and requests of MPI in progress are
  /// leaked.
  virtual void abandon() {}
  /// Another authority has ended the session, such as a launcher that misses a host.
  [[nodiscard]] virtual std::optional<Failure> interruption() const { return std::nullopt; }
  /// To that authority: the session has stalled, and this rank waits for these.
  virtual void report_awaited(const RankSet& /*awaited*/, const std::string& /*reason*/) {}
  /// Ranks of this host whose process has ended.
  [[nodiscard]] virtual std::vector<int> lost_ranks() const { return {}; }
};

}  // namespace kolo::internal::session
