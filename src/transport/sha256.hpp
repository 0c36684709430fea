// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), and HMAC with it (RFC 2104).
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

namespace kolo::internal {

using Digest = std::array<std::byte, 32>;

[[nodiscard]] Digest sha256(std::span<const std::byte> bytes);

/// The HMAC of the concatenated parts.
[[nodiscard]] Digest hmac_sha256(std::span<const std::byte> key,
                                 std::initializer_list<std::span<const std::byte>> parts);

/// Compares in a time that does not depend on where the digests differ, against timing attacks.
[[nodiscard]] bool is_same_digest(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace kolo::internal
