// SPDX-License-Identifier: Apache-2.0
// The connections of this rank to the others: a transport for control messages and one for data.
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

/// Owns the connections and their resources. The interface that keeps MPI out of the engine.
class Links {
 public:
  virtual ~Links() = default;
  [[nodiscard]] virtual transport::Transport& transport() = 0;
  [[nodiscard]] virtual backend::Backend& backend() = 0;
  /// The bell that wakes this rank. Thread-safe.
  [[nodiscard]] virtual const node::Doorbell& bell() const = 0;
  /// True while messages or data may arrive without a ring, so that the driver has to poll.
  [[nodiscard]] virtual bool must_poll() const = 0;
  /// True if data arrives over a network that rings the bell, and there is a spare processor, so
  /// that a driver that polls before it sleeps slows no other rank.
  [[nodiscard]] virtual bool has_processor_to_poll() const { return false; }
  /// The board for the replay of plans; null unless all ranks share memory.
  [[nodiscard]] virtual negotiation::PlanBoard* board() { return nullptr; }
  /// The transport of data, as in `kolo::cpu_operations`.
  [[nodiscard]] virtual std::string data_path() const = 0;
  /// The heap that the other ranks of this host can read directly; null if there is none.
  [[nodiscard]] virtual std::shared_ptr<node::SharedHeap> heap() const { return nullptr; }
  /// The status pages of the ranks of this host; empty if they share no memory.
  [[nodiscard]] virtual std::vector<StatusBoard::Seat> seats() const { return {}; }
  /// Process descriptors of the other ranks of this host, readable once the process has ended. They
  /// stay valid after the session.
  [[nodiscard]] virtual std::vector<node::FileDescriptor> other_processes() const { return {}; }
  /// True while MPI reads and writes the memory of batches.
  [[nodiscard]] virtual bool mpi_has_batches() { return false; }
  /// Called after the session has failed: destruction then waits for no other rank, and pending MPI
  /// requests are leaked.
  virtual void abandon() {}
  /// The failure with which the job's server has ended the session, for example after the loss of a
  /// host.
  [[nodiscard]] virtual std::optional<Failure> interruption() const { return std::nullopt; }
  /// Reports to the job's server that the session has stalled while this rank waits for `awaited`.
  virtual void report_awaited(const RankSet& /*awaited*/, const std::string& /*reason*/) {}
  /// Reports to the job's server that the session, or this operation in words, has failed because
  /// of other ranks.
  virtual void report_missed(const RankSet& /*ranks*/, const std::string& /*operation*/) {}
  /// The ranks of this host whose processes have ended.
  [[nodiscard]] virtual std::vector<int> lost_ranks() const { return {}; }
};

}  // namespace kolo::internal::session
