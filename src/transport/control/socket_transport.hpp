// SPDX-License-Identifier: Apache-2.0
// Control messages between hosts over TCP. A thread can sleep until a message arrives.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/control/reconnector.hpp"
#include "transport/control/socket_edge.hpp"

namespace kolo::internal::transport {

/// The other end of a connection.
struct SocketPeer {
  int rank;
  std::string host;
  std::vector<int> ranks_of_host;
  node::FileDescriptor socket;  // connected and non-blocking
  FrameKeys keys{};
  bool is_called = false;                  // by this rank; otherwise it has called
  std::vector<SocketAddress> addresses{};  // where it listens, if this rank can call it there
};

struct SocketOptions {
  /// A host that is silent for this long is lost. 0 disables the check.
  std::chrono::nanoseconds peer_timeout{};
  /// With what broken connections are made again. Empty: the end of a connection is a loss.
  std::optional<ReconnectOptions> reconnect{};

  // Seams for tests.
  /// The time since the other host's kernel last acknowledged data on this socket.
  std::function<std::chrono::nanoseconds(int socket)> acknowledged_ago{};
  std::size_t max_unsent = max_unsent_bytes;
  std::size_t window = SocketEdge::default_window;
};

/// A rank without messages sends a keepalive every quarter of `peer_timeout`. A host counts as lost
/// when it has sent nothing for `peer_timeout`, not even its kernel's acknowledgments, so a stopped
/// process is not lost. The time counts from the first call of `set_time`. It starts again after a
/// pause of at least a quarter of the timeout, because the hosts of a stopped job resume one by
/// one.
///
/// A connection that ends without a goodbye, or to which nothing can be sent, is made again, and no
/// message is lost or repeated (`Reconnector`). The peer is lost if its process has ended, or if
/// the connection is not back after `peer_timeout`. A peer whose host is silent for half of that
/// time is called again, too: this host may have another address now, and after an outage the
/// kernel is slow to send again.
class SocketTransport : public Transport, private Reconnector::Edges {
 public:
  /// Throws BackendError if epoll fails.
  SocketTransport(std::vector<SocketPeer> peers, SocketOptions options);

  void set_time(std::chrono::steady_clock::time_point now, std::chrono::nanoseconds pause) override;
  void send(int peer, Message message) override;
  bool poll(const Receiver& receive) override;
  [[nodiscard]] bool flushed() const override;
  [[nodiscard]] const Failure* loss() const override { return loss_ ? &*loss_ : nullptr; }

  /// Becomes readable when `poll` has something to move.
  [[nodiscard]] int descriptor() const { return epoll_.get(); }

  [[nodiscard]] std::chrono::nanoseconds peer_timeout() const { return options_.peer_timeout; }

  /// Stops moving messages and checking peers. `descriptor` is never readable afterwards.
  void abandon();
  /// Sends goodbyes and waits up to `patience` for the goodbyes of the peers, so that no peer takes
  /// the end of the connection for a failure. Drops messages that arrive meanwhile.
  void close(std::chrono::nanoseconds patience);

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Peer {
    SocketEdge edge;
    std::string host;
    std::vector<int> ranks_of_host;
    TimePoint received_at{};
    bool sent_lately = false;       // since the last keepalive was due
    bool watched_for_room = false;  // epoll reports when the socket takes more data
    bool cut = false;               // since nothing can be sent to it
    bool reported = false;          // a warning about the silent process was logged
    bool called_again = false;      // since its host is silent
    std::optional<TimePoint> broken_at{};
    std::string broken_by{};
    bool break_reported = false;
  };

  bool move(Peer& peer, std::uint32_t events, const Receiver& receive);
  void connection_ended(Peer& peer);
  void await_return(Peer& peer);
  void reconnect();
  [[nodiscard]] static std::string text_of_end(const Peer& peer);
  [[nodiscard]] bool can_resume(int rank, std::uint64_t taken) const override;
  [[nodiscard]] std::uint64_t interrupt(int rank) override;
  void resume(int rank, node::FileDescriptor socket, std::uint64_t taken) override;
  void end(int rank) override;

  void watch(Peer& peer, int operation);
  void after_sending(Peer& peer);
  void send_keepalives();
  void check_silence();
  [[nodiscard]] std::chrono::nanoseconds silence(const Peer& peer) const;
  void lose_host(Peer& peer, std::chrono::nanoseconds silent);
  [[nodiscard]] std::vector<pollfd> advance_goodbyes();
  void lose(const std::vector<int>& ranks, std::string reason);
  void hang_up(Peer& peer);

  SocketOptions options_;
  node::FileDescriptor epoll_;
  node::NotInherited not_inherited_{epoll_.get()};
  std::vector<Peer> peers_{};
  std::unique_ptr<Reconnector> reconnector_{};
  std::optional<Failure> loss_{};
  TimePoint now_{};
  bool has_begun_ = false;  // the time was set
  TimePoint next_keepalive_ = TimePoint::max();
  TimePoint next_check_ = TimePoint::max();
};

}  // namespace kolo::internal::transport
