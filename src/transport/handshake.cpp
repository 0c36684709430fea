// SPDX-License-Identifier: Apache-2.0
#include "transport/handshake.hpp"

#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "kolo/error.hpp"
#include "node/random.hpp"

namespace kolo::internal::transport {
namespace {

using Bytes = Handshake::Bytes;

template <typename Item>
unsigned char* raw(Item& item) {
  return reinterpret_cast<unsigned char*>(&item);
}
template <typename Item>
const unsigned char* raw(const Item& item) {
  return reinterpret_cast<const unsigned char*>(&item);
}

/// Chooses the fastest code for this processor. Without it, libsodium uses slower code.
void require_sodium() {
  static const int status = ::sodium_init();
  if (status < 0) throw BackendError("libsodium cannot start: it finds no random bytes");
}

/// Keyed BLAKE2b of a struct without padding, whose first member tells the uses of a key apart.
template <typename Content>
Secret hash(const Secret& key, const Content& content) {
  static_assert(std::has_unique_object_representations_v<Content>);
  Secret hashed;
  crypto_generichash(raw(hashed), sizeof hashed, raw(content), sizeof content, raw(key),
                     sizeof key);
  return hashed;
}

using Label = std::array<char, 16>;

Label label_of(std::string_view text) {
  Label label{};
  std::ranges::copy(text, label.begin());
  return label;
}

/// The description of a connection from which its keys are derived. Another version of the
/// handshake has another label.
struct Transcript {
  Label label = label_of("kolo handshake 2");
  Parties::Kind kind;
  std::int32_t caller;
  std::int32_t callee;
  std::uint16_t family;
  std::uint16_t port;
  std::array<std::uint8_t, 16> address;
  Nonce caller_nonce;
  Nonce callee_nonce;
};

struct SessionSeed {
  Label label = label_of("kolo session 1");
  Secret seed;
  std::uint64_t session;
};

/// The messages are sent as they lie in memory, since all supported machines have the same byte
/// order.
struct Hello {
  Nonce nonce;
  std::int32_t from;
  std::int32_t to;
};
static_assert(sizeof(Hello) == Handshake::hello_bytes);

template <typename Message>
Message read(std::span<const std::byte> bytes) {
  Message message;
  std::memcpy(&message, bytes.data(), sizeof message);
  return message;
}

/// Compares in a time that does not depend on the content.
bool same_bytes(std::span<const std::byte> message, std::span<const std::byte> expected) {
  return message.size() == expected.size() &&
         sodium_memcmp(message.data(), expected.data(), expected.size()) == 0;
}

Bytes join(std::span<const std::byte> a, std::span<const std::byte> b) {
  Bytes all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

}  // namespace

Secret derive_secret(const Secret& job, const Secret& seed, std::uint64_t session) {
  require_sodium();
  return hash(job, SessionSeed{.seed = seed, .session = session});
}

std::uint64_t hash_with_secret(const Secret& secret, const std::string& text) {
  require_sodium();
  const Secret key = hash(secret, label_of("kolo text 1"));
  std::array<unsigned char, crypto_generichash_BYTES_MIN> hashed{};
  crypto_generichash(hashed.data(), hashed.size(),
                     reinterpret_cast<const unsigned char*>(text.data()), text.size(), raw(key),
                     sizeof key);
  return read<std::uint64_t>(std::as_bytes(std::span(hashed)));
}

Nonce draw_nonce() {
  Nonce nonce;
  fill_random(nonce);
  return nonce;
}

Handshake::Handshake(Side side, const Secret& secret, const Parties& parties, const Nonce& nonce)
    : side_(side),
      stage_(side == Side::caller ? Stage::welcome : Stage::hello),
      secret_(secret),
      parties_(parties),
      own_(nonce) {
  require_sodium();
}

Bytes Handshake::begin() const {
  const Hello hello{own_, parties_.caller, parties_.callee};
  const auto bytes = std::as_bytes(std::span(&hello, 1));
  return {bytes.begin(), bytes.end()};
}

std::size_t Handshake::awaited_bytes() const {
  switch (stage_) {
    case Stage::hello: return hello_bytes;
    case Stage::welcome: return welcome_bytes;
    case Stage::proof:
    case Stage::confirmation: return proof_bytes;
    case Stage::complete:
    case Stage::failed: break;
  }
  return 0;
}

std::optional<Bytes> Handshake::answer(std::span<const std::byte> message) {
  std::optional<Bytes> reply;
  if (awaited_bytes() != 0 && message.size() == awaited_bytes()) {
    if (stage_ == Stage::hello)
      reply = take_hello(message);
    else if (stage_ == Stage::welcome)
      reply = take_welcome(message);
    else if (stage_ == Stage::proof)
      reply = take_proof(message);
    else
      reply = take_confirmation(message);
  }
  if (!reply) stage_ = Stage::failed;
  return reply;
}

std::optional<Bytes> Handshake::take_hello(std::span<const std::byte> message) {
  const auto hello = read<Hello>(message);
  if (hello.to != parties_.callee || (hello.from >= 0) != is_between_ranks()) return std::nullopt;
  parties_.caller = hello.from;
  derive_keys(hello.nonce, own_);
  stage_ = Stage::proof;
  return join(own_, own_proof_);
}

std::optional<Bytes> Handshake::take_welcome(std::span<const std::byte> message) {
  derive_keys(own_, read<Nonce>(message));
  if (!same_bytes(message.last(proof_bytes), their_proof_)) return std::nullopt;
  stage_ = is_between_ranks() ? Stage::confirmation : Stage::complete;
  return Bytes(own_proof_.begin(), own_proof_.end());
}

std::optional<Bytes> Handshake::take_proof(std::span<const std::byte> message) {
  if (!same_bytes(message, their_proof_)) return std::nullopt;
  stage_ = Stage::complete;
  return is_between_ranks() ? Bytes(confirmation_.begin(), confirmation_.end()) : Bytes{};
}

std::optional<Bytes> Handshake::take_confirmation(std::span<const std::byte> message) {
  if (!same_bytes(message, confirmation_)) return std::nullopt;
  stage_ = Stage::complete;
  return Bytes{};
}

/// The proofs, the confirmation and the keys are different keys that libsodium derives from one
/// hash of the transcript under the secret. So none of them reveals another, and a proof cannot be
/// sent back to the side that made it.
void Handshake::derive_keys(const Nonce& caller, const Nonce& callee) {
  const Secret root = hash(secret_, Transcript{.kind = parties_.kind,
                                               .caller = parties_.caller,
                                               .callee = parties_.callee,
                                               .family = parties_.at.family,
                                               .port = parties_.at.port,
                                               .address = parties_.at.bytes,
                                               .caller_nonce = caller,
                                               .callee_nonce = callee});
  static_assert(sizeof(Secret) == crypto_kdf_KEYBYTES);
  const auto derive = [&](std::uint64_t number) {
    std::array<std::byte, proof_bytes> key;
    crypto_kdf_derive_from_key(raw(key), sizeof key, number, "kolo hs1", raw(root));
    return key;
  };
  const bool calls = side_ == Side::caller;
  own_proof_ = derive(calls ? 1 : 2);
  their_proof_ = derive(calls ? 2 : 1);
  confirmation_ = derive(5);
  keys_ = {.sent = derive(calls ? 3 : 4), .received = derive(calls ? 4 : 3)};
}

}  // namespace kolo::internal::transport
