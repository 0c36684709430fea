// Bytes of a rank's status: on its page in shared memory, and within messages.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "negotiation/status.hpp"

namespace kolo::negotiation {

[[nodiscard]] std::vector<std::byte> encode_status(const RankStatus& status);

/// Throws ProtocolError if the bytes are damaged.
[[nodiscard]] RankStatus decode_status(std::span<const std::byte> bytes);

}  // namespace kolo::negotiation
