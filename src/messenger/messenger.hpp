// SPDX-License-Identifier: Apache-2.0
// Carries the data of batches between ranks: the seam between the collectives and the network.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/failure.hpp"

namespace kolo::internal::messenger {

/// Messages of a rank to another with the same tag are received in the order in which they were
/// sent. Messages with different tags do not wait for each other.
using Tag = std::uint64_t;

/// Returned to the owner of a transfer when that is complete. The messenger does not look into it.
struct Token {
  void* owner = nullptr;
  int* counter = nullptr;
};

/// The transfers of one owner. The memory of a transfer belongs to the network until its token
/// comes back.
class Channel {
 public:
  Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  virtual ~Channel() = default;

  /// At least one byte; as many as the other rank receives. Throws BackendError.
  virtual void send(int peer, Tag tag, const std::byte* data, std::int64_t bytes, Token token) = 0;
  virtual void receive(int peer, Tag tag, std::byte* data, std::int64_t bytes, Token token) = 0;

  /// Moves what can be moved, and adds the tokens of the transfers that are complete to `done`.
  /// Never waits. Throws BackendError.
  virtual void progress(std::vector<Token>& done) = 0;
};

/// One thread at a time. A lost peer keeps no other from being reached: its transfers stay
/// incomplete, and `loss` names it.
class Messenger {
 public:
  Messenger() = default;
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;
  virtual ~Messenger() = default;

  using TimePoint = std::chrono::steady_clock::time_point;
  /// The clock that tells how long messages take; simulations have their own.
  [[nodiscard]] virtual TimePoint now() const { return std::chrono::steady_clock::now(); }

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// Tags are below this. The same on all ranks.
  [[nodiscard]] virtual Tag tag_count() const = 0;

  /// Valid until it is released, and never longer than the messenger.
  [[nodiscard]] virtual Channel& open() = 0;
  /// Withdraws the transfers that are not complete: both ranks do so, or the session is over. False
  /// if the network may still read or write their memory, which then must not be freed.
  [[nodiscard]] virtual bool release(Channel& channel) noexcept = 0;

  /// Moves what can be moved without a channel's call. True if anything moved. Throws BackendError.
  virtual bool progress() = 0;
  /// One of them is readable while there is something to move. Empty: `may_sleep` alone decides.
  [[nodiscard]] virtual std::vector<int> descriptors() const { return {}; }
  /// False if nothing tells when there is something to move, or if there is. Call it between the
  /// last `progress` and the sleep.
  [[nodiscard]] virtual bool may_sleep() = 0;
  /// True while the memory of transfers belongs to the network.
  [[nodiscard]] virtual bool uses_memory() const = 0;

  /// The first peer that was lost; null if none is.
  [[nodiscard]] virtual const Failure* loss() const { return nullptr; }

  /// Says goodbye to the peers, and waits at most for `patience` until they have too; 0: neither.
  /// Afterwards no transfer completes, and unless `uses_memory` is true, no memory of a transfer is
  /// touched.
  virtual void close(std::chrono::nanoseconds patience) noexcept = 0;
};

}  // namespace kolo::internal::messenger
