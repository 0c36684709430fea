// SPDX-License-Identifier: Apache-2.0
#include "transport/handshake.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/random.hpp"
#include "transport/sha256.hpp"

namespace kolo::internal::transport {
namespace {

using Bytes = Handshake::Bytes;
using Side = Handshake::Side;

Bytes join(std::span<const std::byte> a, std::span<const std::byte> b) {
  Bytes all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

template <typename Message>
Bytes to_bytes(const Message& message) {
  const auto bytes = std::as_bytes(std::span(&message, 1));
  return {bytes.begin(), bytes.end()};
}

/// None if the number of bytes is not the size of the message.
template <typename Message>
std::optional<Message> from_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() != sizeof(Message)) return std::nullopt;
  Message message;
  std::memcpy(&message, bytes.data(), sizeof message);
  return message;
}

// ---- with the rendezvous server ----

class JobHandshake : public Handshake {
 public:
  JobHandshake(Side side, const Secret& secret, Bytes nonce)
      : side_(side), secret_(secret), own_(std::move(nonce)) {}

  [[nodiscard]] Bytes begin() const override { return own_; }

  [[nodiscard]] std::optional<Bytes> answer(std::span<const std::byte> message) override {
    return side_ == Side::caller ? answer_challenge(message) : answer_caller(message);
  }

 private:
  // A label per side, so that an impostor cannot send a proof back to the side that made it.
  static constexpr std::string_view server_label = "kolo rendezvous server";
  static constexpr std::string_view client_label = "kolo rendezvous client";

  [[nodiscard]] Digest prove(std::string_view label, std::span<const std::byte> caller,
                             std::span<const std::byte> callee) const {
    return hmac_sha256(secret_, {std::as_bytes(std::span(label)), caller, callee});
  }

  /// The caller checks the challenge, which is the server's nonce and proof, and returns its own
  /// proof.
  [[nodiscard]] std::optional<Bytes> answer_challenge(std::span<const std::byte> message) {
    if (message.size() <= sizeof(Digest)) return std::nullopt;
    const auto nonce = message.first(message.size() - sizeof(Digest));
    const auto proof = message.last(sizeof(Digest));
    trusted_ = is_same_digest(proof, prove(server_label, own_, nonce));
    if (!trusted_) return std::nullopt;
    return to_bytes(prove(client_label, own_, nonce));
  }

  /// The server receives two messages: the caller's nonce, which it answers with a challenge, and
  /// then the caller's proof.
  [[nodiscard]] std::optional<Bytes> answer_caller(std::span<const std::byte> message) {
    if (!theirs_) {
      theirs_.emplace(message.begin(), message.end());
      return join(own_, prove(server_label, *theirs_, own_));
    }
    trusted_ = is_same_digest(message, prove(client_label, *theirs_, own_));
    return trusted_ ? std::optional<Bytes>(Bytes{}) : std::nullopt;
  }

  Side side_;
  Secret secret_;
  Bytes own_;
  std::optional<Bytes> theirs_{};  // the caller's nonce; only the server stores it
};

// ---- on control connections ----

class ControlHandshake : public Handshake {
 public:
  ControlHandshake(Side side, const Secret& secret, int own_rank, int callee)
      : Handshake(callee), side_(side), secret_(secret), rank_(own_rank) {
    std::ranges::copy(draw_nonce(own_.size()), own_.begin());
  }

  [[nodiscard]] Bytes begin() const override { return to_bytes(make(Kind::hello)); }

  /// The caller receives a welcome. The callee receives a hello, and then a message that the caller
  /// has chosen this connection. The third message is needed because the caller may try several
  /// addresses at once, and only it knows which connection it keeps.
  [[nodiscard]] std::optional<Bytes> answer(std::span<const std::byte> bytes) override {
    const auto message = from_bytes<Message>(bytes);
    const Kind wanted = side_ == Side::caller ? Kind::welcome
                        : peer_ < 0           ? Kind::hello
                                              : Kind::chosen;
    if (!message || message->kind != wanted || message->to != rank_ || message->from < 0 ||
        (peer_ >= 0 && message->from != peer_) || !is_proved(*message))
      return std::nullopt;
    theirs_ = message->nonce;
    peer_ = message->from;
    trusted_ = wanted != Kind::hello;
    if (wanted == Kind::chosen) return Bytes{};
    return to_bytes(make(wanted == Kind::hello ? Kind::welcome : Kind::chosen));
  }

 private:
  using Nonce = std::array<std::byte, 16>;
  enum class Kind : std::uint32_t { hello, welcome, chosen };
  struct Message {
    Nonce nonce;   // drawn by the sender
    Digest proof;  // shows that the sender knows the secret; zeros in a hello
    std::int32_t from;
    std::int32_t to;
    Kind kind;
  };
  static_assert(sizeof(Message) == control_handshake_bytes);
  static constexpr std::string_view label = "kolo control connection";

  [[nodiscard]] Message make(Kind kind) const {
    Message message{.nonce = own_, .proof = {}, .from = rank_, .to = peer_, .kind = kind};
    if (kind != Kind::hello) message.proof = prove(kind, own_, theirs_, rank_, peer_);
    return message;
  }

  [[nodiscard]] bool is_proved(const Message& message) const {
    return message.kind == Kind::hello ||
           is_same_digest(message.proof,
                          prove(message.kind, message.nonce, own_, message.from, rank_));
  }

  /// The kind is part of the proof, so that an impostor cannot send a proof back to the side that
  /// made it.
  [[nodiscard]] Digest prove(Kind kind, const Nonce& sender, const Nonce& receiver, int from,
                             int to) const {
    const std::array<std::int32_t, 3> who{static_cast<std::int32_t>(kind), from, to};
    return hmac_sha256(secret_, {std::as_bytes(std::span(label)), std::as_bytes(std::span(who)),
                                 sender, receiver});
  }

  Side side_;
  Secret secret_;
  int rank_;
  Nonce own_{};
  Nonce theirs_{};
};

// ---- on data connections ----

/// SipHash-2-4 (Aumasson and Bernstein, 2012) for messages of two words.
std::uint64_t siphash(const std::array<std::uint64_t, 2>& key,
                      const std::array<std::uint64_t, 2>& message) {
  std::array<std::uint64_t, 4> v{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
                                 key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573};
  const auto rounds = [&v](int count) {
    for (int round = 0; round < count; ++round) {
      v[0] += v[1];
      v[1] = std::rotl(v[1], 13) ^ v[0];
      v[0] = std::rotl(v[0], 32);
      v[2] += v[3];
      v[3] = std::rotl(v[3], 16) ^ v[2];
      v[0] += v[3];
      v[3] = std::rotl(v[3], 21) ^ v[0];
      v[2] += v[1];
      v[1] = std::rotl(v[1], 17) ^ v[2];
      v[2] = std::rotl(v[2], 32);
    }
  };
  const std::uint64_t length = sizeof message;
  for (const std::uint64_t word : {message[0], message[1], length << 56}) {
    v[3] ^= word;
    rounds(2);
    v[0] ^= word;
  }
  v[2] ^= 0xff;
  rounds(4);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/// The proof depends only on the secret, the ranks and the direction. Both sides compute the whole
/// message that they expect and compare. `is_answer` is part of the proof, so that a caller's
/// message cannot be sent back as its answer.
class DataHandshake : public Handshake {
 public:
  DataHandshake(Side side, const Secret& secret, int own_rank, int callee)
      : Handshake(callee), side_(side), secret_(secret), rank_(own_rank) {}

  [[nodiscard]] Bytes begin() const override { return to_bytes(make(false, rank_, peer_)); }

  [[nodiscard]] std::optional<Bytes> answer(std::span<const std::byte> bytes) override {
    const auto message = from_bytes<Message>(bytes);
    if (!message) return std::nullopt;
    const bool is_answer = side_ == Side::caller;
    const int from = is_answer ? peer_ : message->from;
    trusted_ = *message == make(is_answer, from, rank_);
    if (!trusted_) return std::nullopt;
    peer_ = from;
    return is_answer ? Bytes{} : to_bytes(make(true, rank_, peer_));
  }

 private:
  struct Message {
    std::array<std::uint64_t, 2> proof;
    std::int32_t from;
    std::int32_t to;

    friend bool operator==(const Message&, const Message&) = default;
  };
  static_assert(sizeof(Message) == data_handshake_bytes);

  [[nodiscard]] Message make(bool is_answer, int from, int to) const {
    std::array<std::array<std::uint64_t, 2>, 2> keys{};
    static_assert(sizeof keys == sizeof secret_);
    std::memcpy(keys.data(), secret_.data(), sizeof keys);
    const std::array<std::uint64_t, 2> message{
        is_answer ? 2U : 1U,
        std::uint64_t{static_cast<std::uint32_t>(from)} << 32 | static_cast<std::uint32_t>(to)};
    return {{siphash(keys[0], message), siphash(keys[1], message)}, from, to};
  }

  Side side_;
  Secret secret_;
  int rank_;
};

}  // namespace

Bytes draw_nonce(std::size_t bytes) {
  Bytes nonce(bytes);
  fill_random(nonce);
  return nonce;
}

std::unique_ptr<Handshake> make_job_handshake(Side side, const Secret& secret, Bytes nonce) {
  return std::make_unique<JobHandshake>(side, secret, std::move(nonce));
}

std::unique_ptr<Handshake> make_control_handshake(Side side, const Secret& secret, int own_rank,
                                                  int callee) {
  return std::make_unique<ControlHandshake>(side, secret, own_rank, callee);
}

std::unique_ptr<Handshake> make_data_handshake(Side side, const Secret& secret, int own_rank,
                                               int callee) {
  return std::make_unique<DataHandshake>(side, secret, own_rank, callee);
}

}  // namespace kolo::internal::transport
