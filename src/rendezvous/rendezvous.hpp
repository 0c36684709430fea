// SPDX-License-Identifier: Apache-2.0
// How the ranks of a session that starts exchange what they need to know of each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/message.hpp"

namespace kolo::internal::rendezvous {

/// The ranks of one session. All ranks make the same calls in the same order. A call throws
/// PeerLeft as soon as a rank is lost, and then every further call does. Not thread-safe.
class Rendezvous {
 public:
  Rendezvous() = default;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  virtual ~Rendezvous() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// By rank: the `mine` of each, which may differ in length.
  [[nodiscard]] virtual std::vector<Bytes> gather_all(std::span<const std::byte> mine) = 0;

  /// The root's `mine`; that of other ranks is ignored.
  [[nodiscard]] virtual Bytes broadcast(std::span<const std::byte> mine, int root) = 0;

  /// The ranks that give the same `group` as this one, ascending; at most `max_name` bytes.
  [[nodiscard]] std::vector<int> split(const std::string& group) {
    const std::vector<Bytes> all = gather_all(std::as_bytes(std::span(group)));
    const Bytes& own = all[static_cast<std::size_t>(rank())];
    std::vector<int> ranks;
    for (std::size_t other = 0; other < all.size(); ++other)
      if (all[other] == own) ranks.push_back(static_cast<int>(other));
    return ranks;
  }

  /// Does not block. Ranks that wait for each other outside these calls call it every few
  /// milliseconds, so that a loss ends their wait: it throws as they do.
  virtual void check() = 0;

  /// True if the session is over, without a throw.
  [[nodiscard]] virtual bool interrupted() = 0;
};

}  // namespace kolo::internal::rendezvous
