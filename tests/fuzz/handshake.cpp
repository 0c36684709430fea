// SPDX-License-Identifier: Apache-2.0
// The messages of a handshake, with somebody between the two sides who may replace each of them.
#include <algorithm>
#include <optional>

#include "target.hpp"
#include "transport/handshake.hpp"

namespace kolo::internal::fuzz {
namespace {

using transport::Handshake;
using transport::Parties;
using Message = Handshake::Bytes;

/// Delivers a message, or bytes of the input in its place. None once a side has refused one.
class Between {
 public:
  explicit Between(Choices& choices) : choices_(choices) {}

  std::optional<Message> deliver(Handshake& to, const std::optional<Message>& message) {
    if (!message) return std::nullopt;
    Message delivered = *message;
    switch (choices_.next() % 4) {
      case 0: break;
      case 1:
        if (!delivered.empty())
          delivered[choices_.next() % delivered.size()] ^= static_cast<std::byte>(choices_.next());
        break;
      case 2: delivered.resize(choices_.next()); break;
      default:
        delivered.clear();
        for (std::size_t left = choices_.next(); left > 0; --left)
          delivered.push_back(static_cast<std::byte>(choices_.next()));
    }
    altered_ = altered_ || delivered != *message;
    return to.answer(delivered);
  }
  [[nodiscard]] bool altered() const { return altered_; }

 private:
  Choices& choices_;
  bool altered_ = false;
};

/// Accepts the input if both sides complete the handshake.
bool run(Bytes bytes) {
  Choices choices(bytes);
  const bool is_rendezvous = choices.next() % 2 != 0;
  const auto kind = is_rendezvous ? Parties::Kind::rendezvous : Parties::Kind::control;
  const int rank = is_rendezvous ? -1 : 0;
  const transport::Secret secret{std::byte{1}};
  Handshake caller(Handshake::Side::caller, secret,
                   {.kind = kind, .caller = is_rendezvous ? -1 : 1, .callee = rank},
                   transport::Nonce{std::byte{2}});
  Handshake callee(Handshake::Side::callee, secret, {.kind = kind, .callee = rank},
                   transport::Nonce{std::byte{3}});
  Between between(choices);
  const auto welcome = between.deliver(callee, caller.begin());
  const auto proof = between.deliver(caller, welcome);
  require(!caller.is_trusted() || !between.altered(), "a caller trusts an altered handshake");
  const auto confirmation = between.deliver(callee, proof);
  require(!callee.is_trusted() || !between.altered(), "a callee trusts an altered handshake");
  if (!is_rendezvous) {
    static_cast<void>(between.deliver(caller, confirmation));
    require(!caller.is_complete() || !between.altered(), "an altered confirmation is believed");
  }
  if (!caller.is_complete() || !callee.is_complete()) return false;
  require(caller.keys().sent == callee.keys().received, "the two sides have other keys");
  return true;
}

std::vector<Seed> seeds() {
  return {{"ranks", std::string(5, '\0')}, {"rendezvous", std::string("\x01\x00\x00\x00", 4)}};
}

}  // namespace

const Target handshake_target{.name = "handshake", .max_bytes = 512, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
