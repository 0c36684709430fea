// Between messages and bytes (FlatBuffers; the schema is wire.fbs).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "negotiation/wire/message.hpp"
#include "negotiation/wire/status.hpp"

namespace kolo::internal::negotiation {

/// Bytes that cannot be a message of ours: damaged, or against the rules of the protocol.
class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[nodiscard]] std::vector<std::byte> encode(std::uint64_t session, const MessageBody& body);

/// Verifies before it reads. Throws ProtocolError.
[[nodiscard]] ControlMessage decode(std::span<const std::byte> bytes);

/// A status as it stands on the page of its rank in shared memory.
[[nodiscard]] std::vector<std::byte> encode_status(const RankStatus& status);

/// Throws ProtocolError: a page may hold anything, if its process writes wherever it likes.
[[nodiscard]] RankStatus decode_status(std::span<const std::byte> bytes);

}  // namespace kolo::internal::negotiation
