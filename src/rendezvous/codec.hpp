// SPDX-License-Identifier: Apache-2.0
// Between messages and bytes (FlatBuffers; the schema is rendezvous.fbs).
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>

#include "rendezvous/message.hpp"

namespace kolo::internal::rendezvous {

/// A message that is damaged or that no sender means.
class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[nodiscard]] Bytes encode(const Message& message);

/// Verifies the bytes before reading them. Throws ProtocolError, also for texts and lists longer
/// than the bounds of message.hpp.
[[nodiscard]] Message decode(std::span<const std::byte> bytes);

}  // namespace kolo::internal::rendezvous
