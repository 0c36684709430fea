// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rendezvous/server/server.hpp"
#include "rendezvous/proof.hpp"
#include "rendezvous/server.hpp"

namespace kolo::internal::rendezvous {

/// The proof that a server expects if its nonce consists of fours.
[[nodiscard]] inline Proof proof_for(const Hello& hello, const Secret& secret) {
  const Bytes own(nonce_bytes, std::byte{4});
  return Introduction(secret, hello.nonce).answer(make_challenge(secret, hello.nonce, own)).value();
}

/// Introduces a process or agent that knows the secret to such a server.
inline void introduce(Server& server, Link link, Hello hello, Time now, const Secret& secret = {}) {
  hello.nonce.assign(nonce_bytes, std::byte{5});
  server.on_message(link, hello, now);
  server.on_message(link, proof_for(hello, secret), now);
}

}  // namespace kolo::internal::rendezvous
