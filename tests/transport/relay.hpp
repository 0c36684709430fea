// SPDX-License-Identifier: Apache-2.0
// Passes bytes between the ends of connections, until it breaks them.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "socket_fixture.hpp"

namespace kolo::internal::transport {

/// Ends a connection without a farewell: the other side reads an error.
inline void reset(node::FileDescriptor socket) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

class Relay {
 public:
  enum Direction : std::uint8_t { to_callee, to_caller };

  /// `callee`: where new connections lead.
  explicit Relay(const SocketAddress& callee) : callee_(callee) {}

  /// Relays between two sockets that are connected already.
  void add(node::FileDescriptor caller, node::FileDescriptor callee) {
    links_.push_back({{std::move(callee), std::move(caller)}});
  }
  /// As `begin_to_connect`, through the relay.
  [[nodiscard]] Connecting connect() {
    return begin_to_connect(own_.addresses().at(0).to_system());
  }

  /// While it is down it passes nothing on, and accepts nobody.
  void set_down(bool down) { down_ = down; }
  /// Resets its connections once so many bytes more have passed in a direction. The bytes behind
  /// them are lost.
  void cut_after(Direction direction, std::size_t bytes) { left_[direction] = bytes; }
  [[nodiscard]] bool has_cut() const { return !left_[to_callee] && !left_[to_caller]; }
  void stop_cutting() { left_ = {}; }

  void break_all() {
    for (Link& link : links_) break_link(link);
    links_.clear();
  }
  /// Breaks connections only for the caller. The callee's stay, and nothing passes.
  void break_callers() {
    for (Link& link : links_) {
      reset(std::exchange(link.ends[to_caller], {}));
      silent_.push_back(std::move(link.ends[to_callee]));
    }
    links_.clear();
  }
  /// Passes nothing on over the present connections, which stay.
  void forget_all() {
    for (Link& link : links_)
      for (node::FileDescriptor& end : link.ends) silent_.push_back(std::move(end));
    links_.clear();
  }
  /// Closes the connections in good order, without a goodbye.
  void close_all() { links_.clear(); }

  [[nodiscard]] std::size_t connections() const { return connections_; }
  [[nodiscard]] std::size_t passed() const { return passed_; }
  /// All that callers have sent on connections through the relay, each by itself.
  [[nodiscard]] const std::vector<Message>& recorded() const { return recorded_; }

  void step() {
    if (down_) return;
    while (accept()) {
    }
    for (Link& link : links_)
      if (!pass(link, to_callee) || !pass(link, to_caller)) {
        break_link(link);
        link.over = true;
      }
    links_.remove_if([](const Link& link) { return link.over; });
  }

 private:
  struct Link {
    std::array<node::FileDescriptor, 2> ends;  // by the direction that leads to them
    std::optional<std::size_t> record{};
    bool over = false;
  };

  static void break_link(Link& link) {
    for (node::FileDescriptor& end : link.ends) reset(std::exchange(end, {}));
  }

  bool accept() {
    node::FileDescriptor caller = accept_connection(own_.sockets().at(0).get());
    if (!caller.valid()) return false;
    Connecting callee = begin_to_connect(callee_.to_system());
    if (callee.error == EINPROGRESS)
      callee.error = *end_of_connecting(callee.socket.get(), too_long);
    if (callee.error != 0) return true;
    disable_delay(caller.get());
    disable_delay(callee.socket.get());
    add(std::move(caller), std::move(callee.socket));
    links_.back().record = recorded_.size();
    recorded_.emplace_back();
    ++connections_;
    return true;
  }

  /// False if the connection is to break.
  bool pass(Link& link, Direction direction) {
    std::array<std::byte, 65536> buffer;
    std::optional<std::size_t>& left = left_[direction];
    for (;;) {
      const std::size_t room = left ? std::min(*left, buffer.size()) : buffer.size();
      if (left && room == 0) {
        left_ = {};
        return false;
      }
      const ssize_t bytes = ::recv(link.ends[1 - direction].get(), buffer.data(), room, 0);
      if (bytes == 0) return false;
      if (bytes < 0) return errno == EAGAIN;
      if (link.record && direction == to_callee)
        recorded_[*link.record].insert(recorded_[*link.record].end(), buffer.begin(),
                                       buffer.begin() + bytes);
      passed_ += static_cast<std::size_t>(bytes);
      if (left) *left -= static_cast<std::size_t>(bytes);
      for (ssize_t sent = 0; sent < bytes;) {
        const ssize_t more = ::send(link.ends[direction].get(), buffer.data() + sent,
                                    static_cast<std::size_t>(bytes - sent), MSG_NOSIGNAL);
        if (more < 0 && errno != EAGAIN) return false;
        sent += std::max<ssize_t>(more, 0);
      }
    }
  }

  SocketAddress callee_;
  Listeners own_{{loopback()}};
  std::list<Link> links_{};
  std::vector<node::FileDescriptor> silent_{};
  std::array<std::optional<std::size_t>, 2> left_{};
  std::vector<Message> recorded_{};
  std::size_t connections_ = 0;
  std::size_t passed_ = 0;
  bool down_ = false;
};

}  // namespace kolo::internal::transport
