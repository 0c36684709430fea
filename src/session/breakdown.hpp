// Why a session cannot go on, and how ranks tell each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/transport.hpp"

namespace kolo::session {

struct Breakdown {
  enum class Kind : std::uint8_t { peer_left, stalled, backend };  // the last is never sent
  Kind kind;
  std::string reason;
  std::vector<int> ranks;
  std::string tensor{};  // "": each operation's own

  /// What it is to the other ranks: `rank`'s own error makes it one that has left.
  [[nodiscard]] Breakdown as_seen_from_others(int rank) const;
};

/// A message that no negotiator sends, of what it is to others. It travels along every edge between
/// hosts, once.
[[nodiscard]] transport::Message encode(std::uint64_t session, const Breakdown& breakdown);

/// Nothing if the message is something else, or of another session.
[[nodiscard]] std::optional<Breakdown> decode_breakdown(std::uint64_t session,
                                                        std::span<const std::byte> message);

}  // namespace kolo::session
