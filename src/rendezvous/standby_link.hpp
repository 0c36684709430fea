// SPDX-License-Identifier: Apache-2.0
// The connection of a process to the standby, which may take over from the rendezvous server.
#pragma once

#include <poll.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "kolo/error.hpp"
#include "rendezvous/introduction.hpp"
#include "rendezvous/message_stream.hpp"
#include "transport/sockets.hpp"

namespace kolo::internal::rendezvous {

/// The time that a standby has to take over once the server is lost: its agents must first miss the
/// server, and then agree.
[[nodiscard]] inline std::chrono::nanoseconds patience_with_standby(
    std::chrono::nanoseconds lease) {
  return 2 * lease + std::chrono::seconds(10);
}

/// Exists from the start of the process, so that a standby that takes over can tell the process at
/// once: the process itself could not tell a server that is cut off from one with nothing to say.
/// Not thread-safe.
class StandbyLink {
 public:
  /// Connects, and introduces the process. Returns null if the standby does not answer in time: the
  /// process then ends with its server.
  [[nodiscard]] static std::unique_ptr<StandbyLink> try_to_open(const transport::Endpoint& at,
                                                                const Secret& secret,
                                                                const Hello& hello) {
    try {
      auto link = std::make_unique<StandbyLink>(at, secret, hello);
      return link->is_introduced() ? std::move(link) : nullptr;
    } catch (const BackendError&) {
      return nullptr;
    }
  }

  /// Begins to connect to an address at which a standby was, and does not wait: the driver may call
  /// it. Returns null if that fails at once.
  [[nodiscard]] static std::unique_ptr<StandbyLink> reopen(const transport::Endpoint& at,
                                                           const transport::SystemAddress& address,
                                                           const Secret& secret,
                                                           const Hello& hello) {
    transport::Connecting attempt = transport::begin_to_connect(address);
    if (!attempt.socket.valid() || (attempt.error != 0 && attempt.error != EINPROGRESS))
      return nullptr;
    return std::make_unique<StandbyLink>(at, std::move(attempt.socket), secret, hello);
  }

  StandbyLink(const transport::Endpoint& at, const Secret& secret, const Hello& hello)
      : StandbyLink(at, transport::connect_to(at, patience), secret, hello) {}

  StandbyLink(transport::Endpoint at, node::FileDescriptor socket, const Secret& secret,
              const Hello& hello)
      : at_(std::move(at)),
        stream_(std::move(socket)),
        introduction_(secret, hello, to_string(at_)) {
    transport::tune(stream_.descriptor(), silence);
    introduction_.begin(stream_);
  }

  /// True once the standby has taken over. Receives messages.
  [[nodiscard]] bool has_taken_over() {
    stream_.write();
    // Later messages are for the new owner of the stream.
    if (!succession_)
      stream_.read([&](const Message& message) {
        if (!introduction_.passes(stream_, message)) {
          if (!introduction_.problem().empty()) stream_.close(introduction_.problem());
        } else if (const auto* const over = std::get_if<Succession>(&message)) {
          succession_ = *over;
        } else {
          stream_.close("it sent a message that is not for a standby to send");
        }
        return !succession_;
      });
    return succession_.has_value();
  }

  [[nodiscard]] bool is_open() const { return !stream_.closed(); }
  /// The address of the peer, to connect to it again without a look-up of its name.
  [[nodiscard]] transport::SystemAddress address() const {
    return transport::peer_address(stream_.descriptor());
  }
  [[nodiscard]] int descriptor() const { return stream_.descriptor(); }
  [[nodiscard]] const transport::Endpoint& at() const { return at_; }
  /// Why the standby has taken over.
  [[nodiscard]] const std::string& reason() const { return succession_->reason; }
  [[nodiscard]] MessageStream take_stream() { return std::move(stream_); }
  [[nodiscard]] Introduction take_introduction() { return std::move(introduction_); }

 private:
  static constexpr std::chrono::seconds patience{2};
  static constexpr std::chrono::seconds silence{30};

  /// Completes the handshake now: a standby refuses who does not identify himself in time.
  [[nodiscard]] bool is_introduced() {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (is_open() && !(introduction_.is_trusted() && stream_.flushed())) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
      if (left.count() <= 0) return false;
      pollfd waits{.fd = stream_.descriptor(), .events = POLLIN, .revents = 0};
      ::poll(&waits, 1, static_cast<int>(left.count()));
      static_cast<void>(has_taken_over());
    }
    return is_open();
  }

  transport::Endpoint at_;
  MessageStream stream_;
  Introduction introduction_;
  std::optional<Succession> succession_{};
};

}  // namespace kolo::internal::rendezvous
