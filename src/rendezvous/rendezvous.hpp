// SPDX-License-Identifier: Apache-2.0
// The collective calls by which the ranks of a starting session exchange addresses and settings.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "rendezvous/message.hpp"

namespace kolo::internal::rendezvous {

/// Connects the ranks of one session while it starts. All ranks make the same calls in the same
/// order. If the implementation detects that a rank is lost, the call and all further calls throw
/// PeerLeft. Not thread-safe.
class Rendezvous {
 public:
  Rendezvous() = default;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  virtual ~Rendezvous() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// The secret of the job, from which each session derives its own; zeros if the job has none, as
  /// over MPI.
  [[nodiscard]] virtual transport::Secret job_secret() const { return {}; }

  /// Returns the `mine` of each rank, by rank. All ranks pass the same number of bytes.
  [[nodiscard]] virtual std::vector<Bytes> gather_all(std::span<const std::byte> mine) = 0;

  /// The ranks that may share memory with this rank, including this rank, ascending.
  [[nodiscard]] virtual std::vector<int> ranks_of_machine() = 0;

  /// Throws if a rank is lost; never blocks. Ranks that wait for each other outside these calls
  /// call this every few milliseconds, so that a loss ends their wait.
  virtual void check() = 0;

  /// The last call of a start. Afterwards all data that was sent arrives even if no rank makes
  /// another call.
  virtual void settle() = 0;
};

}  // namespace kolo::internal::rendezvous
