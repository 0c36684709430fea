// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "job_secret.hpp"
#include "rendezvous/server/server.hpp"

namespace kolo::internal::rendezvous {

/// The handshake and the hello of a process or agent that knows the secret, with a server whose
/// nonce consists of fours.
inline void shake_hands(Server& server, Link link, const Hello& hello, Time now,
                        const Secret& secret = {}) {
  transport::Handshake client = make_client(secret);
  transport::Handshake same_server = make_server(secret);
  const auto welcome = same_server.answer(client.begin());
  server.on_message(link, HandshakeStep{client.begin()}, now);
  server.on_message(link, HandshakeStep{client.answer(*welcome).value()}, now);
  server.on_message(link, hello, now);
}

}  // namespace kolo::internal::rendezvous
