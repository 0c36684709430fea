// SPDX-License-Identifier: Apache-2.0
// Reliable control messages between ranks. The messages of each pair of ranks stay in order.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/failure.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::transport {

using Message = std::vector<std::byte>;

/// The most bytes that may wait for one rank that does not read its messages, such as a stopped
/// process. More than this ends the session, since the sender's memory would grow without bound.
inline constexpr std::size_t max_unsent_bytes = std::size_t{1} << 30;

/// Throws BackendError.
[[noreturn]] inline void refuse_unsent(int rank, std::size_t bytes) {
  throw BackendError("rank " + std::to_string(rank) +
                     " does not read its messages: " + std::to_string(bytes) +
                     " bytes wait for it. Its process may be stopped, or its host overloaded");
}

/// The connections of one rank. Not thread-safe.
class Transport {
 public:
  using Receiver = std::function<void(int peer, std::span<const std::byte> message)>;

  virtual ~Transport() = default;

  /// Sets the time by which the transport judges other ranks. Call it before each `poll`. `pause`:
  /// the part of the time since the last call that `now` omits because this process did not run.
  virtual void set_time(std::chrono::steady_clock::time_point /*now*/,
                        std::chrono::nanoseconds /*pause*/) {}

  /// Queues the message and returns at once. Throws BackendError if too many bytes wait for the
  /// peer.
  virtual void send(int peer, Message message) = 0;

  /// Sends queued messages and passes arrived messages to `receive`. Never blocks. Returns true if
  /// any bytes moved. Throws BackendError.
  virtual bool poll(const Receiver& receive) = 0;

  /// True if all queued messages have left, so that none needs another `poll`.
  [[nodiscard]] virtual bool flushed() const = 0;

  /// The first loss that `poll` has found; null if all ranks can be reached. A loss is reported
  /// only after all messages of the lost ranks have been passed on.
  [[nodiscard]] virtual const Failure* loss() const { return nullptr; }
};

}  // namespace kolo::internal::transport
