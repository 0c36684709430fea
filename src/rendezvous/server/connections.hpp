// SPDX-License-Identifier: Apache-2.0
// The connections of the rendezvous server. A connection is a stranger until the other side proves
// that it knows the secret.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "rendezvous/server/server_interface.hpp"

namespace kolo::internal::rendezvous {

struct Peer {
  std::string from;                                 // the address, for messages
  std::optional<transport::Handshake> handshake{};  // since its first message
  std::optional<Hello> hello{};
  std::optional<Role> role{};  // none: a stranger
  ProcessId process = 0;
};

/// Log lines about refused connections. They are limited, so that a port scan cannot fill the log.
class Refusals {
 public:
  static constexpr int max_lines = 20;  // per interval
  static constexpr Time interval = std::chrono::minutes(1);

  /// The line to write; none if this interval already had `max_lines` lines.
  [[nodiscard]] std::optional<std::string> line(const std::string& from, const std::string& reason,
                                                Time now) {
    int left_out = 0;
    if (now - begin_ >= interval) {
      begin_ = now;
      left_out = std::max(0, count_ - max_lines);
      count_ = 0;
    }
    if (++count_ > max_lines) return std::nullopt;
    std::string text = fmt::format("a connection from {} is refused: {}", from, reason);
    if (left_out > 0) text += fmt::format(" (before it, {} more that were not shown)", left_out);
    if (count_ == max_lines) text += "; others are only counted for a while";
    return text;
  }

 private:
  Time begin_{};
  int count_ = 0;  // refusals since `begin_`
};

/// Bounds the number of strangers and their time, so that they cannot exhaust the server.
class Connections {
 public:
  /// `random` draws the nonces. The options and actions outlive this object.
  Connections(const ServerOptions& options, std::function<std::uint64_t()> random, Actions& actions)
      : options_(options), random_(std::move(random)), actions_(actions) {}

  /// The stranger whose connection the next `open` would close, because there are too many
  /// strangers; none if it would close none.
  [[nodiscard]] std::optional<Link> next_evicted() const;
  void open(Link link, const std::string& from, Time now);
  [[nodiscard]] const Peer* find(Link link) const;
  /// Refuses a stranger that belongs to another user of the server's host.
  void refuse_user(Link link, Time now) {
    refuse(link, "it belongs to another user of this host, or hides its user", now);
  }

  /// Handles a stranger's message. Returns the message if it is the hello of a stranger that has
  /// proved that it knows the secret.
  [[nodiscard]] std::optional<Hello> identify(Link link, const Message& message, Time now);
  /// Turns a stranger into a participant of the job. `process`: 0 for an agent.
  void admit(Link link, Role role, ProcessId process);
  /// Refuses a stranger that knows the secret, and closes its connection.
  void turn_away(Link link, const Refusal& refusal, Time now);
  /// Refuses strangers that have not proved in time that they know the secret, and who they are.
  void refuse_late(Time now);
  [[nodiscard]] std::optional<Time> next_time() const;

  /// Forgets a connection that the other side has closed. Returns its peer if it was admitted.
  std::optional<Peer> drop(Link link, const std::string& reason, Time now);
  /// Closes the connection after all sent messages have left, and forgets it.
  void close(Link link);
  void send_to_admitted(const std::shared_ptr<const Message>& message);

 private:
  /// Continues or begins the handshake.
  void shake_hands(Link link, const HandshakeStep& step, Time now);
  void refuse(Link link, const std::string& reason, Time now);
  void note_refusal(const std::string& from, const std::string& reason, Time now);

  const ServerOptions& options_;
  std::function<std::uint64_t()> random_;
  Actions& actions_;
  std::map<Link, Peer> peers_{};
  std::map<Link, Time> strangers_{};  // when each stranger has connected
  std::set<ProcessId> put_off_{};     // agents that were told to try again later
  Refusals refusals_{};
};

}  // namespace kolo::internal::rendezvous
