// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "job_secret.hpp"
#include "rendezvous/server/server.hpp"

namespace kolo::internal::rendezvous {

/// The proof that a server expects if its nonce consists of fours.
[[nodiscard]] inline Proof proof_for(const Hello& hello, const Secret& secret) {
  const Bytes own(nonce_bytes, std::byte{4});
  return make_proof(secret, hello.nonce, make_challenge(secret, hello.nonce, own)).value();
}

/// The handshake of a process or agent that knows the secret with such a server.
inline void shake_hands(Server& server, Link link, Hello hello, Time now,
                        const Secret& secret = {}) {
  hello.nonce.assign(nonce_bytes, std::byte{5});
  server.on_message(link, hello, now);
  server.on_message(link, proof_for(hello, secret), now);
}

}  // namespace kolo::internal::rendezvous
