// Between messages and bytes (FlatBuffers; the schema is wire.fbs).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <variant>
#include <vector>

#include "negotiation/message.hpp"

namespace kolo::negotiation {

/// A message that cannot be one of ours: damaged, or against the rules of the protocol.
class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Envelope {
  std::uint64_t session = 0;
  std::variant<Upward, Downward> content;
};

[[nodiscard]] std::vector<std::byte> encode(std::uint64_t session, const Upward& message);
[[nodiscard]] std::vector<std::byte> encode(std::uint64_t session, const Downward& message);

/// Verifies before it reads. Throws ProtocolError.
[[nodiscard]] Envelope decode(std::span<const std::byte> bytes);

}  // namespace kolo::negotiation
