// SPDX-License-Identifier: Apache-2.0
// Carries control messages between ranks: any to any, each pair in order, none lost.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "base/failure.hpp"

namespace kolo::internal::transport {

using Message = std::vector<std::byte>;

/// One thread at a time.
class Transport {
 public:
  using Receiver = std::function<void(int peer, std::span<const std::byte> message)>;

  virtual ~Transport() = default;

  /// Takes the message and returns at once.
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
