// SPDX-License-Identifier: Apache-2.0
// How the ranks of a session that starts exchange what they need to know of each other.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "rendezvous/message.hpp"

namespace kolo::internal::rendezvous {

/// The ranks of one session. All ranks make the same calls in the same order. Where the
/// implementation notices that a rank is lost, a call throws PeerLeft, and then every further call
/// does. Not thread-safe.
class Rendezvous {
 public:
  Rendezvous() = default;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  virtual ~Rendezvous() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// By rank: the `mine` of each; all have the same number of bytes.
  [[nodiscard]] virtual std::vector<Bytes> gather_all(std::span<const std::byte> mine) = 0;

  /// The ranks that may share memory with this one, itself included, ascending.
  [[nodiscard]] virtual std::vector<int> ranks_of_machine() = 0;

  /// Does not block. Ranks that wait for each other outside these calls call it every few
  /// milliseconds, so that a loss ends their wait: it throws as they do.
  virtual void check() = 0;

  /// The last call of a start: after it, no rank needs to be in another call for what has been sent
  /// to arrive.
  virtual void settle() = 0;
};

}  // namespace kolo::internal::rendezvous
