// SPDX-License-Identifier: Apache-2.0
// The secret of the tests' jobs, and both sides of handshakes with one.
#pragma once

#include "rendezvous/message.hpp"

namespace kolo::internal::rendezvous {

inline Secret make_secret() {
  Secret secret{};
  for (std::size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<std::byte>(i * 7);
  return secret;
}

[[nodiscard]] inline transport::Nonce nonce_of(int value) {
  transport::Nonce nonce;
  nonce.fill(static_cast<std::byte>(value));
  return nonce;
}

[[nodiscard]] inline transport::Handshake make_client(const Secret& secret, int nonce = 5) {
  return {transport::Handshake::Side::caller,
          secret,
          {.kind = transport::Parties::Kind::rendezvous},
          nonce_of(nonce)};
}
[[nodiscard]] inline transport::Handshake make_server(const Secret& secret, int nonce = 4) {
  return {transport::Handshake::Side::callee,
          secret,
          {.kind = transport::Parties::Kind::rendezvous},
          nonce_of(nonce)};
}

}  // namespace kolo::internal::rendezvous
