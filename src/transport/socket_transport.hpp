// SPDX-License-Identifier: Apache-2.0
// Control messages between hosts, over TCP connections that can be slept on.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "transport/socket_edge.hpp"

namespace kolo::internal::transport {

/// The other end of a connection.
struct SocketPeer {
  int rank;
  std::string host;
  std::vector<int> ranks_of_host;
  node::FileDescriptor socket;  // connected, does not block
};

struct SocketOptions {
  std::uint64_t session = 0;
  /// A host that is silent for so long is lost. 0: none ever is.
  std::chrono::nanoseconds peer_timeout{};

  // Seams for tests.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
  /// How long ago the other host has acknowledged anything.
  std::function<std::chrono::nanoseconds(int socket)> acknowledged_ago{};
  std::size_t max_unsent = max_unsent_bytes;
};

/// A rank without messages sends a keepalive every quarter of `peer_timeout`. A host counts as lost
/// when it has sent nothing for `peer_timeout`, not even its kernel's acknowledgments, so a stopped
/// process is not lost. A peer whose connection ends without a goodbye is lost at once.
class SocketTransport : public Transport {
 public:
  /// Throws BackendError.
  SocketTransport(std::vector<SocketPeer> peers, SocketOptions options);

  void send(int peer, Message message) override;
  bool poll(const Receiver& receive) override;
  [[nodiscard]] bool flushed() const override;
  [[nodiscard]] const Failure* loss() const override { return loss_ ? &*loss_ : nullptr; }

  /// Readable while `poll` would find something to move.
  [[nodiscard]] int descriptor() const { return epoll_.get(); }

  [[nodiscard]] std::chrono::nanoseconds peer_timeout() const { return options_.peer_timeout; }

  /// From now on nothing is moved and no peer is checked: `descriptor` stays silent.
  void abandon();
  /// Says goodbye and waits, at most for `patience`, until the others have too. Messages that
  /// arrive meanwhile are dropped.
  void close(std::chrono::nanoseconds patience);

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Peer {
    SocketEdge edge;
    std::string host;
    std::vector<int> ranks_of_host;
    TimePoint received_at;
    bool sent_lately = false;  // since the last keepalive
    bool watched_for_room = false;
    bool reported = false;  // it is silent, but its host answers
  };

  bool move(Peer& peer, std::uint32_t events, const Receiver& receive);
  void watch(Peer& peer, int operation);
  void watch_for_room(Peer& peer);
  void send_keepalives(TimePoint now);
  void check_silence(TimePoint now);
  void lose(const std::vector<int>& ranks, std::string reason);
  void hang_up(Peer& peer);

  SocketOptions options_;
  node::FileDescriptor epoll_;
  node::NotInherited not_inherited_{epoll_.get()};
  std::vector<Peer> peers_{};
  std::optional<Failure> loss_{};
  TimePoint next_keepalive_ = TimePoint::max();
  TimePoint next_check_ = TimePoint::max();
};

}  // namespace kolo::internal::transport
