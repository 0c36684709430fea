// SPDX-License-Identifier: Apache-2.0
// How the two ends of a connection show each other that they know the secret, without showing it.
//
// The client's greeting has a number that it has drawn. The server answers with a number of its
// own and a proof, and the client, if that is right, with its proof: an HMAC of both numbers with
// the secret as the key. The numbers are used once, so what somebody else has heard is of no use.
#pragma once

#include <optional>

#include "rendezvous/message.hpp"

namespace kolo::internal::rendezvous {

/// The server's answer to a greeting that has `nonce`; `own` is its own number.
[[nodiscard]] Challenge make_challenge(const Secret& secret, const Bytes& nonce, const Bytes& own);
/// `own`, `nonce`: as for the challenge.
[[nodiscard]] bool is_proof(const Proof& proof, const Secret& secret, const Bytes& nonce,
                            const Bytes& own);

/// A client's side, for one connection.
class Introduction {
 public:
  /// Draws the number.
  explicit Introduction(const Secret& secret);
  Introduction(const Secret& secret, Bytes nonce);

  /// For the greeting.
  [[nodiscard]] const Bytes& nonce() const { return nonce_; }
  /// None if the other side does not know the secret.
  [[nodiscard]] std::optional<Proof> answer(const Challenge& challenge);
  /// The other side has shown that it knows the secret.
  [[nodiscard]] bool is_trusted() const { return trusted_; }

 private:
  Secret secret_;
  Bytes nonce_;
  bool trusted_ = false;
};

}  // namespace kolo::internal::rendezvous
