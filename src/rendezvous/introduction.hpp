// SPDX-License-Identifier: Apache-2.0
// How a process or an agent begins its connection to the rendezvous server.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "rendezvous/message_stream.hpp"

namespace kolo::internal::rendezvous {

/// The client's handshake, and then its hello. It follows no order of a server that has not proved
/// that it knows the secret: such a server can only make the connection useless, as it can by
/// hanging up.
class Introduction {
 public:
  /// `server`: its address, for messages.
  Introduction(const Secret& secret, Hello hello, std::string server)
      : handshake_(transport::Handshake::Side::caller, secret,
                   {.kind = transport::Parties::Kind::rendezvous}),
        hello_(std::move(hello)),
        server_(std::move(server)) {}

  void begin(MessageStream& to) const {
    to.set_max_bytes(max_handshake);
    to.send(HandshakeStep{handshake_.begin()});
  }

  /// True if the message is for the caller: the server is trusted, and the handshake is over.
  [[nodiscard]] bool passes(MessageStream& from, const Message& message) {
    if (handshake_.is_trusted() && !std::holds_alternative<HandshakeStep>(message)) return true;
    if (!problem_.empty()) return false;
    const auto* const step = std::get_if<HandshakeStep>(&message);
    const auto* const claim = std::get_if<Refusal>(&message);
    const auto proof = step == nullptr ? std::nullopt : handshake_.answer(step->bytes);
    if (proof) {
      from.send(HandshakeStep{*proof});
      from.authenticate(handshake_.keys());
      from.set_max_bytes(max_message);
      from.send(hello_);
    } else {
      problem_ = claim == nullptr ? fmt::format(
                                        "the server at {} does not know this job's secret, or has "
                                        "another version of Kolo",
                                        server_)
                                  : fmt::format(
                                        "the server at {} has not proved that it knows this job's "
                                        "secret, and says: {}",
                                        server_, printable(claim->reason));
      problem_ += "; check the host, port and secret";
    }
    return false;
  }

  /// True once the server has proved that it knows the secret. The hello is on its way then.
  [[nodiscard]] bool is_trusted() const { return handshake_.is_trusted(); }
  /// Why the server is not to be trusted; "" as long as it may be.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  /// The text of somebody who has proved nothing, without anything that a terminal would execute.
  [[nodiscard]] static std::string printable(const std::string& text) {
    constexpr std::size_t most = 200;
    std::string shown = text.substr(0, most);
    for (char& one : shown)
      if (one < ' ' || one > '~') one = '?';
    return shown;
  }

  transport::Handshake handshake_;
  Hello hello_;
  std::string server_;
  std::string problem_{};
};

}  // namespace kolo::internal::rendezvous
