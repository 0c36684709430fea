// SPDX-License-Identifier: Apache-2.0
// The messages of a handshake with the rendezvous server. The client's Hello contains its nonce.
// The server answers with a Challenge, and the client answers that with a Proof.
#pragma once

#include <optional>
#include <utility>

#include "rendezvous/message.hpp"
#include "transport/handshake.hpp"

namespace kolo::internal::rendezvous {

/// The server's answer to a hello.
[[nodiscard]] inline Challenge challenge(transport::Handshake& server, const Hello& hello) {
  const Bytes answer = server.answer(hello.nonce).value();
  const auto middle = answer.begin() + nonce_bytes;
  return {.nonce{answer.begin(), middle}, .proof{middle, answer.end()}};
}

/// The client's answer to a challenge; none if the challenge shows that the server does not know
/// the secret.
[[nodiscard]] inline std::optional<Proof> prove(transport::Handshake& client,
                                                const Challenge& challenge) {
  Bytes message = challenge.nonce;
  message.insert(message.end(), challenge.proof.begin(), challenge.proof.end());
  auto answer = client.answer(message);
  return answer ? std::optional(Proof{std::move(*answer)}) : std::nullopt;
}

/// True if the proof shows that the client knows the secret.
[[nodiscard]] inline bool accepts(transport::Handshake& server, const Proof& proof) {
  return server.answer(proof.proof).has_value();
}

}  // namespace kolo::internal::rendezvous
