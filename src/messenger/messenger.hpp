// SPDX-License-Identifier: Apache-2.0
// Moves the data of batches between ranks: the interface between the collectives and the network.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/failure.hpp"

namespace kolo::internal::messenger {

/// Messages from one rank to another with the same tag arrive in the order in which they were sent.
/// Messages with different tags do not wait for each other.
using Tag = std::uint64_t;

/// Identifies a transfer to its owner, who gets it back on completion. Opaque to the messenger.
struct Token {
  void* owner = nullptr;
  int* counter = nullptr;
};

/// The transfers of one owner. The network may access the memory of a transfer until its token is
/// returned.
class Channel {
 public:
  Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  virtual ~Channel() = default;

  /// Sends at least one byte, and exactly as many as the other rank receives. Throws BackendError.
  virtual void send(int peer, Tag tag, const std::byte* data, std::int64_t bytes, Token token) = 0;
  virtual void receive(int peer, Tag tag, std::byte* data, std::int64_t bytes, Token token) = 0;

  /// Advances transfers and appends the tokens of complete ones to `done`. Never waits. Throws
  /// BackendError.
  virtual void progress(std::vector<Token>& done) = 0;
};

/// Moves data between this rank and all others, through channels. Used by one thread at a time. A
/// lost peer does not affect communication with others: its transfers stay incomplete, and `loss`
/// names the first lost peer.
class Messenger {
 public:
  Messenger() = default;
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;
  virtual ~Messenger() = default;

  using TimePoint = std::chrono::steady_clock::time_point;
  /// The clock for durations of transfers; simulations override it.
  [[nodiscard]] virtual TimePoint now() const { return std::chrono::steady_clock::now(); }

  /// The word for this network in the result of `kolo::cpu_operations`.
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// All tags are below this number, which is the same on all ranks.
  [[nodiscard]] virtual Tag tag_count() const = 0;

  /// The channel is valid until it is released; the messenger must outlive it.
  [[nodiscard]] virtual Channel& open() = 0;
  /// Withdraws unfinished transfers; both sides do so, or the session is over. Returns false if the
  /// network may still access their memory, which then must not be freed.
  [[nodiscard]] virtual bool release(Channel& channel) noexcept = 0;

  /// Advances transfers of all channels. True if anything moved. Throws BackendError.
  virtual bool progress() = 0;
  /// Descriptors that become readable when the network has work. `may_sleep` also knows of work
  /// that no descriptor shows; if there are no descriptors, it alone tells.
  [[nodiscard]] virtual std::vector<int> descriptors() const { return {}; }
  /// False if there is work, or if nothing would signal new work. Call it between the last
  /// `progress` and the sleep.
  [[nodiscard]] virtual bool may_sleep() = 0;
  /// True while the network may access the memory of transfers.
  [[nodiscard]] virtual bool uses_memory() const = 0;

  /// The first peer that was lost; null if there is none.
  [[nodiscard]] virtual const Failure* loss() const { return nullptr; }

  /// Says goodbye to the peers and waits up to `patience` for their goodbyes; 0 skips both.
  /// Afterwards no transfer completes, and unless `uses_memory` is true, the memory of transfers is
  /// not accessed.
  virtual void close(std::chrono::nanoseconds patience) noexcept = 0;
};

}  // namespace kolo::internal::messenger
