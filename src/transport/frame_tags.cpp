// SPDX-License-Identifier: Apache-2.0
#include "transport/frame_tags.hpp"

#include <sodium.h>

namespace kolo::internal::transport {
namespace {

const unsigned char* raw(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

/// Keyed BLAKE2b, whose tags need no nonce: a tag of Poly1305 would, and a repeated nonce would
/// reveal its key. SipHash is faster, but hashes only bytes that lie together.
FrameTag FrameTags::next(std::span<const std::byte> header, std::span<const std::byte> body) {
  FrameTag tag;
  crypto_generichash_state state;
  crypto_generichash_init(&state, raw(key_), key_.size(), tag.size());
  crypto_generichash_update(&state, raw(std::as_bytes(std::span(&count_, 1))), sizeof count_);
  crypto_generichash_update(&state, raw(header), header.size());
  crypto_generichash_update(&state, raw(body), body.size());
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(tag.data()), tag.size());
  ++count_;
  return tag;
}

bool FrameTags::accepts(std::span<const std::byte> header, std::span<const std::byte> body,
                        const FrameTag& tag) {
  const FrameTag right = next(header, body);
  return sodium_memcmp(right.data(), tag.data(), tag.size()) == 0;
}

}  // namespace kolo::internal::transport
