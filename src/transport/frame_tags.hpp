// SPDX-License-Identifier: Apache-2.0
// Tags that show that a frame is the next one that the other side has sent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kolo::internal::transport {

using FrameKey = std::array<std::byte, 32>;

/// The keys of one connection. Each direction has its own, so that a frame cannot be sent back.
struct FrameKeys {
  FrameKey sent{};
  FrameKey received{};
};

using FrameTag = std::array<std::byte, 16>;
using HeaderTag = std::array<std::byte, 8>;

/// Keyed BLAKE2b of the number of a frame, its header and its body. Such tags need no nonce, as one
/// of Poly1305 would, where a repeated nonce would reveal the key.
[[nodiscard]] FrameTag tag_of(const FrameKey& key, std::uint64_t number,
                              std::span<const std::byte> header,
                              std::span<const std::byte> body = {});

/// The tags of one direction of a connection, in order. Both sides count the frames, so the number
/// of a frame is not sent: a frame that is lost, repeated or moved has a wrong tag, as has one with
/// altered bytes.
class FrameTags {
 public:
  explicit FrameTags(const FrameKey& key);

  /// A tag of the next frame's header alone. It is checked first, so that a side does not wait for
  /// a frame of an altered length.
  [[nodiscard]] HeaderTag header_tag(std::span<const std::byte> header) const;
  [[nodiscard]] bool accepts_header(std::span<const std::byte> header, const HeaderTag& tag) const;
  /// The tag of the next frame.
  [[nodiscard]] FrameTag next(std::span<const std::byte> header, std::span<const std::byte> body);
  /// True if this is the next frame and its tag.
  [[nodiscard]] bool accepts(std::span<const std::byte> header, std::span<const std::byte> body,
                             const FrameTag& tag);

 private:
  FrameKey key_;
  std::array<std::byte, 16> header_key_{};
  std::uint64_t count_ = 0;  // earlier frames
};

}  // namespace kolo::internal::transport
