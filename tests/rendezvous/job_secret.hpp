// SPDX-License-Identifier: Apache-2.0
// The secret of the tests' jobs, and both sides' proofs that they know one.
#pragma once

#include "rendezvous/message.hpp"

namespace kolo::internal::rendezvous {

inline Secret make_secret() {
  Secret secret{};
  for (std::size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<std::byte>(i * 7);
  return secret;
}

/// The challenge by a server that has drawn the nonce `own`, for a hello with `nonce`.
[[nodiscard]] inline Challenge make_challenge(const Secret& secret, const Bytes& nonce,
                                              const Bytes& own) {
  const auto server = make_job_handshake(transport::Handshake::Side::callee, secret, own);
  return challenge(*server, Hello{.nonce = nonce});
}

/// The proof by a client whose hello had `nonce`.
[[nodiscard]] inline std::optional<Proof> make_proof(const Secret& secret, const Bytes& nonce,
                                                     const Challenge& challenge) {
  const auto client = make_job_handshake(transport::Handshake::Side::caller, secret, nonce);
  return prove(*client, challenge);
}

}  // namespace kolo::internal::rendezvous
