// SPDX-License-Identifier: Apache-2.0
// Between messages and bytes (FlatBuffers; the schema is wire.fbs). The state machine uses plain
// structs, because a schema cannot express all rules of the protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "negotiation/wire/message.hpp"
#include "negotiation/wire/status.hpp"

namespace kolo::internal::negotiation {

/// A message that is damaged or breaks the rules of the protocol.
class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[nodiscard]] std::vector<std::byte> encode(std::uint64_t session, const MessageBody& body);

/// More than the ranks of any world: for messages of an unknown one.
inline constexpr int any_ranks = std::numeric_limits<int>::max();

/// Verifies the bytes before reading them. Throws ProtocolError, also for ranks beyond the `ranks`
/// of the world.
[[nodiscard]] ControlMessage decode(std::span<const std::byte> bytes, int ranks = any_ranks);

/// The form of a status on its rank's page in shared memory.
[[nodiscard]] std::vector<std::byte> encode_status(const RankStatus& status);

/// As `decode`. A page may hold anything if its process writes to random addresses.
[[nodiscard]] RankStatus decode_status(std::span<const std::byte> bytes, int ranks = any_ranks);

}  // namespace kolo::internal::negotiation
