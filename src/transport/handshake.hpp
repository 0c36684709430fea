// SPDX-License-Identifier: Apache-2.0
// The handshake of all connections between the processes of a job, in which both sides prove that
// they know a secret without sending it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/frame_tags.hpp"
#include "transport/socket_address.hpp"

namespace kolo::internal::transport {

/// A key that only the processes of one job or session know. Handshakes never send it.
using Secret = std::array<std::byte, 32>;

/// The secret of one session, which each rank derives by itself. `seed`: random bytes of rank 0,
/// which need not be secret if `job` is. A job without a secret has zeros in its place.
[[nodiscard]] Secret derive_secret(const Secret& job, const Secret& seed, std::uint64_t session);

/// A number that tells texts apart and says nothing about them to those who do not know the secret.
[[nodiscard]] std::uint64_t hash_with_secret(const Secret& secret, const std::string& text);

/// Random bytes for a single handshake, so that recorded messages cannot be replayed in another.
using Nonce = std::array<std::byte, 16>;
[[nodiscard]] Nonce draw_nonce();

/// A connection as its two sides see it. They prove to each other that they see the same.
struct Parties {
  enum class Kind : std::uint32_t { rendezvous, control, data, resumption };

  Kind kind;
  int caller = -1;  // its rank; -1 in a rendezvous, and on the callee's side before the hello
  int callee = -1;  // its rank; -1 in a rendezvous
  // Where the caller calls and the callee listens, which must be the same: otherwise a process that
  // listens at an address that exists on several hosts could pass the messages on. Empty in a
  // rendezvous, because its server may be called through a forwarded port.
  SocketAddress at{};
};

/// One side of the handshake of one connection: the caller's hello with its nonce, the callee's
/// welcome with its nonce and proof, the caller's proof, and, between ranks, the callee's
/// confirmation. The callee proves first, so a caller that tries a wrong address reveals nothing
/// that depends on the secret. The confirmation says that the callee has chosen this connection: it
/// may have closed it after its welcome, or have another one with this caller. In a rendezvous the
/// server's first message after the handshake serves as the confirmation. The caller sends the
/// result of `begin`. Then each side passes the messages that it receives to `answer`, and sends
/// the answers, until its handshake is complete.
class Handshake {
 public:
  enum class Side : std::uint8_t { caller, callee };
  using Bytes = std::vector<std::byte>;

  static constexpr std::size_t hello_bytes = sizeof(Nonce) + 2 * sizeof(std::int32_t);
  static constexpr std::size_t proof_bytes = 32;
  // Fits into the 55 bytes that the verbs provider of libfabric sends with an answer.
  static constexpr std::size_t welcome_bytes = sizeof(Nonce) + proof_bytes;
  static constexpr std::size_t max_bytes = welcome_bytes;  // the longest message

  Handshake(Side side, const Secret& secret, const Parties& parties,
            const Nonce& nonce = draw_nonce());

  /// The caller's first message.
  [[nodiscard]] Bytes begin() const;
  /// The answer to a message; empty if there is nothing to send. None if the message is wrong: the
  /// other side then does not know the secret, or is not the one that is meant. A handshake that
  /// has failed accepts nothing more.
  [[nodiscard]] std::optional<Bytes> answer(std::span<const std::byte> message);
  /// The length of the next message; 0 if none is to come.
  [[nodiscard]] std::size_t awaited_bytes() const;

  /// True once the other side has proved that it knows the secret.
  [[nodiscard]] bool is_trusted() const {
    return stage_ == Stage::confirmation || stage_ == Stage::complete;
  }
  /// True once the other side is trusted and nothing more is to come.
  [[nodiscard]] bool is_complete() const { return stage_ == Stage::complete; }
  /// The rank of the other side: for a caller, the rank that it calls; for a callee, the rank that
  /// the caller claims to have. -1 if the rank is unknown.
  [[nodiscard]] int peer() const {
    return side_ == Side::caller ? parties_.callee : parties_.caller;
  }
  /// The keys of the frames on this connection, once the other side is trusted.
  [[nodiscard]] const FrameKeys& keys() const { return keys_; }

 private:
  enum class Stage : std::uint8_t { hello, welcome, proof, confirmation, complete, failed };
  using Proof = std::array<std::byte, proof_bytes>;

  [[nodiscard]] std::optional<Bytes> take_hello(std::span<const std::byte> message);
  [[nodiscard]] std::optional<Bytes> take_welcome(std::span<const std::byte> message);
  [[nodiscard]] std::optional<Bytes> take_proof(std::span<const std::byte> message);
  [[nodiscard]] std::optional<Bytes> take_confirmation(std::span<const std::byte> message);
  [[nodiscard]] bool is_between_ranks() const { return parties_.kind != Parties::Kind::rendezvous; }
  void derive_keys(const Nonce& caller, const Nonce& callee);

  Side side_;
  Stage stage_;  // the message that comes next
  Secret secret_;
  Parties parties_;
  Nonce own_;
  Proof own_proof_{};
  Proof their_proof_{};
  Proof confirmation_{};
  FrameKeys keys_{};
};

}  // namespace kolo::internal::transport
