// SPDX-License-Identifier: Apache-2.0
// Carries control messages between ranks: any to any, each pair in order, none lost.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/failure.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::transport {

using Message = std::vector<std::byte>;

/// What waits for one rank that does not take its messages, such as a stopped one. Beyond it the
/// session cannot go on, or the memory of a rank with such a neighbor would grow without bound.
inline constexpr std::size_t max_unsent_bytes = std::size_t{1} << 30;

/// Throws BackendError.
[[noreturn]] inline void refuse_unsent(int rank, std::size_t bytes) {
  throw BackendError("rank " + std::to_string(rank) +
                     " does not read its messages: " + std::to_string(bytes) +
                     " bytes wait for it. Its process may be stopped, or its host overloaded");
}

/// One thread at a time.
class Transport {
 public:
  using Receiver = std::function<void(int peer, std::span<const std::byte> message)>;

  virtual ~Transport() = default;

  /// Takes the message and returns at once. Throws BackendError if too much waits for the peer.
  virtual void send(int peer, Message message) = 0;

  /// Moves what can be moved and hands over what has arrived; never waits. True if anything moved.
  /// Throws BackendError.
  virtual bool poll(const Receiver& receive) = 0;

  /// True when every message sent has left this rank's hands.
  [[nodiscard]] virtual bool flushed() const = 0;

  /// Of the ranks that cannot be reached any more, the first, as of the last `poll`, after all that
  /// they had sent; null if none is lost.
  [[nodiscard]] virtual const Failure* loss() const { return nullptr; }
};

}  // namespace kolo::internal::transport
