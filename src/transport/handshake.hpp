// SPDX-License-Identifier: Apache-2.0
// Handshakes in which both sides of a connection prove that they know a secret without sending it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace kolo::internal::transport {

/// A key that only the processes of one job or session know. Handshakes never send it.
using Secret = std::array<std::byte, 32>;

/// Random bytes for a single handshake, so that recorded messages cannot be replayed in another.
[[nodiscard]] std::vector<std::byte> draw_nonce(std::size_t bytes);

/// One side of the handshake of one connection. The caller sends the result of `begin`. Then each
/// side passes the messages that it receives to `answer`, and sends the answers, until it trusts
/// the other side.
class Handshake {
 public:
  enum class Side : std::uint8_t { caller, callee };
  using Bytes = std::vector<std::byte>;

  Handshake() = default;
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;
  virtual ~Handshake() = default;

  /// The caller's first message.
  [[nodiscard]] virtual Bytes begin() const = 0;
  /// The answer to a message; empty if there is nothing to send. None if the message is wrong: the
  /// other side then does not know the secret.
  [[nodiscard]] virtual std::optional<Bytes> answer(std::span<const std::byte> message) = 0;

  /// True once the other side has proved that it knows the secret.
  [[nodiscard]] bool is_trusted() const { return trusted_; }
  /// The rank of the other side: for a caller, the rank that it calls; for a callee, the rank that
  /// the caller claims to have. -1 if the rank is unknown.
  [[nodiscard]] int peer() const { return peer_; }

 protected:
  explicit Handshake(int peer) : peer_(peer) {}

  bool trusted_ = false;
  int peer_ = -1;
};

/// A handshake with the rendezvous server, which is the callee. There are three messages: the
/// caller's nonce, the server's nonce and proof, and the caller's proof.
[[nodiscard]] std::unique_ptr<Handshake> make_job_handshake(Handshake::Side side,
                                                            const Secret& secret,
                                                            Handshake::Bytes nonce);

/// A handshake on a control connection between two ranks. All messages have the same length.
/// `callee`: the rank that is called; -1 on the callee's side, which learns its peer from a hello.
[[nodiscard]] std::unique_ptr<Handshake> make_control_handshake(Handshake::Side side,
                                                                const Secret& secret, int own_rank,
                                                                int callee = -1);
inline constexpr std::size_t control_handshake_bytes = 60;

/// A handshake on a data connection between two ranks: one short message from each side. It has no
/// nonces, so it does not detect replayed messages.
[[nodiscard]] std::unique_ptr<Handshake> make_data_handshake(Handshake::Side side,
                                                             const Secret& secret, int own_rank,
                                                             int callee = -1);
inline constexpr std::size_t data_handshake_bytes = 24;

}  // namespace kolo::internal::transport
