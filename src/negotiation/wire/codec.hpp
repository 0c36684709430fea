// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes control messages with FlatBuffers; the schema is wire.fbs. The negotiator
// uses plain structs, because a schema cannot express all rules of the protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "negotiation/wire/message.hpp"

namespace kolo::internal::negotiation {

/// A message that is damaged or breaks the rules of the protocol.
class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[nodiscard]] std::vector<std::byte> encode(std::uint64_t session, const MessageBody& body);

/// Larger than any world. For decoding messages of a world of unknown size.
inline constexpr int any_ranks = std::numeric_limits<int>::max();

/// Verifies the bytes before reading them. Throws ProtocolError for damaged messages, and for ranks
/// that a world of `ranks` ranks does not have.
[[nodiscard]] ControlMessage decode(std::span<const std::byte> bytes, int ranks = any_ranks);

/// Encodes a status for the page of its rank in shared memory.
[[nodiscard]] std::vector<std::byte> encode_status(const RankStatus& status);

/// Verifies and reads a status, like `decode`. A page may hold arbitrary bytes, since a faulty
/// process may write to random addresses.
[[nodiscard]] RankStatus decode_status(std::span<const std::byte> bytes, int ranks = any_ranks);

}  // namespace kolo::internal::negotiation
