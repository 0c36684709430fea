// SPDX-License-Identifier: Apache-2.0
#include "transport/frame_tags.hpp"

#include <sodium.h>

#include <algorithm>

namespace kolo::internal::transport {
namespace {

const unsigned char* raw(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

constexpr std::size_t max_header_bytes = 16;

}  // namespace

/// SipHash would be faster, but hashes only bytes that lie together.
FrameTag tag_of(const FrameKey& key, std::uint64_t number, std::span<const std::byte> header,
                std::span<const std::byte> body) {
  FrameTag tag;
  crypto_generichash_state state;
  crypto_generichash_init(&state, raw(key), key.size(), tag.size());
  crypto_generichash_update(&state, raw(std::as_bytes(std::span(&number, 1))), sizeof number);
  crypto_generichash_update(&state, raw(header), header.size());
  crypto_generichash_update(&state, raw(body), body.size());
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(tag.data()), tag.size());
  return tag;
}

FrameTags::FrameTags(const FrameKey& key) : key_(key) {
  static_assert(sizeof header_key_ == crypto_shorthash_KEYBYTES);
  static_assert(sizeof(HeaderTag) == crypto_shorthash_BYTES);
  static_assert(sizeof key_ == crypto_kdf_KEYBYTES);
  crypto_kdf_derive_from_key(reinterpret_cast<unsigned char*>(header_key_.data()),
                             header_key_.size(), 1, "kolo fr1",
                             reinterpret_cast<const unsigned char*>(key_.data()));
}

/// SipHash-2-4 of the number of the frame and the header. Its 8 bytes are enough, because the first
/// wrong tag ends the connection.
HeaderTag FrameTags::header_tag(std::span<const std::byte> header) const {
  std::array<std::byte, sizeof count_ + max_header_bytes> hashed{};
  const auto number = std::as_bytes(std::span(&count_, 1));
  const auto end = std::ranges::copy(header, std::ranges::copy(number, hashed.begin()).out).out;
  HeaderTag tag;
  crypto_shorthash(reinterpret_cast<unsigned char*>(tag.data()), raw(hashed),
                   static_cast<std::size_t>(end - hashed.begin()), raw(header_key_));
  return tag;
}

bool FrameTags::accepts_header(std::span<const std::byte> header, const HeaderTag& tag) const {
  const HeaderTag right = header_tag(header);
  return sodium_memcmp(right.data(), tag.data(), tag.size()) == 0;
}

FrameTag FrameTags::next(std::span<const std::byte> header, std::span<const std::byte> body) {
  return tag_of(key_, count_++, header, body);
}

bool FrameTags::accepts(std::span<const std::byte> header, std::span<const std::byte> body,
                        const FrameTag& tag) {
  const FrameTag right = next(header, body);
  return sodium_memcmp(right.data(), tag.data(), tag.size()) == 0;
}

}  // namespace kolo::internal::transport
