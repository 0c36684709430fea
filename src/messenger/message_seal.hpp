// SPDX-License-Identifier: Apache-2.0
// Tags and encryption of the messages of data connections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/frame_tags.hpp"

namespace kolo::internal::messenger {

/// One direction of a data connection. Protects headers and, on an encrypted connection, payloads.
/// Both sides number what is protected, so what was altered, repeated or moved, or follows a lost
/// header or payload, is refused. Encryption does not change the length; the tag is separate.
class MessageSeal {
 public:
  using Tag = transport::FrameTag;

  explicit MessageSeal(const transport::FrameKey& key = {}, bool encrypts = false)
      : key_(key), encrypts_(encrypts) {}

  [[nodiscard]] bool encrypts() const { return encrypts_; }

  /// The tag of the next header. On an encrypted connection, encrypts the header in place.
  [[nodiscard]] Tag seal_header(std::span<std::byte> header) const;
  /// Decrypts a header in place. False if it is not the one that comes next.
  [[nodiscard]] bool open_header(std::span<std::byte> header, const Tag& tag) const;

  /// Encrypts the next payload, of at least one byte. `sealed` has the same size.
  [[nodiscard]] Tag encrypt(std::span<const std::byte> payload, std::byte* sealed) const;
  /// Decrypts a payload in place. False if it is not the one that comes next.
  [[nodiscard]] bool decrypt(std::span<std::byte> payload, const Tag& tag) const;

  /// Counts a header or payload, once it was sent or accepted. No number may be used twice.
  void advance() { ++count_; }

 private:
  transport::FrameKey key_;
  bool encrypts_;
  std::uint64_t count_ = 0;  // earlier headers and payloads
};

}  // namespace kolo::internal::messenger
