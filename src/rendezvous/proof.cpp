// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/proof.hpp"

#include <random>
#include <span>
#include <string_view>
#include <utility>

#include "base/sha256.hpp"

namespace kolo::internal::rendezvous {
namespace {

// The two proofs differ, so that none can be sent back as the other.
constexpr std::string_view of_server = "kolo rendezvous server";
constexpr std::string_view of_client = "kolo rendezvous client";

Bytes make_proof(std::string_view side, const Secret& secret, const Bytes& nonce,
                 const Bytes& own) {
  const Digest digest = hmac_sha256(secret, {std::as_bytes(std::span(side)), nonce, own});
  return {digest.begin(), digest.end()};
}

Bytes draw_nonce() {
  std::random_device random;
  Bytes nonce(nonce_bytes);
  for (std::byte& byte : nonce) byte = static_cast<std::byte>(random());
  return nonce;
}

}  // namespace

Challenge make_challenge(const Secret& secret, const Bytes& nonce, const Bytes& own) {
  return {.nonce = own, .proof = make_proof(of_server, secret, nonce, own)};
}

bool is_proof(const Proof& proof, const Secret& secret, const Bytes& nonce, const Bytes& own) {
  return is_same_digest(proof.proof, make_proof(of_client, secret, nonce, own));
}

Introduction::Introduction(const Secret& secret) : Introduction(secret, draw_nonce()) {}

Introduction::Introduction(const Secret& secret, Bytes nonce)
    : secret_(secret), nonce_(std::move(nonce)) {}

std::optional<Proof> Introduction::answer(const Challenge& challenge) {
  trusted_ =
      is_same_digest(challenge.proof, make_proof(of_server, secret_, nonce_, challenge.nonce));
  if (!trusted_) return std::nullopt;
  return Proof{make_proof(of_client, secret_, nonce_, challenge.nonce)};
}

}  // namespace kolo::internal::rendezvous
