// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes the messages of the rendezvous with FlatBuffers; the schema is
// rendezvous.fbs.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>

#include "rendezvous/message.hpp"

namespace kolo::internal::rendezvous {

/// A message that is damaged or that no correct sender sends.
class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[nodiscard]] Bytes encode(const Message& message);

/// Verifies the bytes before reading them. Throws ProtocolError for damaged messages, and for texts
/// and lists longer than the bounds in message.hpp.
[[nodiscard]] Message decode(std::span<const std::byte> bytes);

}  // namespace kolo::internal::rendezvous
