// SPDX-License-Identifier: Apache-2.0
#include "messenger/message_seal.hpp"

#include <sodium.h>

#include <array>
#include <cstring>

namespace kolo::internal::messenger {
namespace {

static_assert(sizeof(MessageSeal::Tag) == crypto_aead_chacha20poly1305_ietf_ABYTES);
static_assert(sizeof(transport::FrameKey) == crypto_aead_chacha20poly1305_ietf_KEYBYTES);

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

/// Each direction has its own key, so the number of the message is a nonce that never repeats.
using Nonce = std::array<unsigned char, crypto_aead_chacha20poly1305_ietf_NPUBBYTES>;
Nonce nonce_of(std::uint64_t number) {
  Nonce nonce{};
  std::memcpy(nonce.data(), &number, sizeof number);
  return nonce;
}

}  // namespace

MessageSeal::Tag MessageSeal::seal_header(std::span<std::byte> header) const {
  return encrypts_ ? encrypt(header, header.data()) : transport::tag_of(key_, count_, header);
}

bool MessageSeal::open_header(std::span<std::byte> header, const Tag& tag) const {
  if (encrypts_) return decrypt(header, tag);
  const Tag right = transport::tag_of(key_, count_, header);
  return sodium_memcmp(right.data(), tag.data(), tag.size()) == 0;
}

MessageSeal::Tag MessageSeal::encrypt(std::span<const std::byte> payload, std::byte* sealed) const {
  Tag tag;
  crypto_aead_chacha20poly1305_ietf_encrypt_detached(
      raw(sealed), raw(tag.data()), nullptr, raw(payload.data()), payload.size(), nullptr, 0,
      nullptr, nonce_of(count_).data(), raw(key_.data()));
  return tag;
}

bool MessageSeal::decrypt(std::span<std::byte> payload, const Tag& tag) const {
  return crypto_aead_chacha20poly1305_ietf_decrypt_detached(
             raw(payload.data()), nullptr, raw(payload.data()), payload.size(), raw(tag.data()),
             nullptr, 0, nonce_of(count_).data(), raw(key_.data())) == 0;
}

}  // namespace kolo::internal::messenger
