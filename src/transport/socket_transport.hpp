// SPDX-License-Identifier: Apache-2.0
// Control messages between hosts over TCP. A thread can sleep until a message arrives.
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
  node::FileDescriptor socket;  // connected and non-blocking
  FrameKeys keys{};
};

struct SocketOptions {
  /// A host that is silent for this long is lost. 0 disables the check.
  std::chrono::nanoseconds peer_timeout{};

  // Seams for tests.
  /// The time since the other host's kernel last acknowledged data on this socket.
  std::function<std::chrono::nanoseconds(int socket)> acknowledged_ago{};
  std::size_t max_unsent = max_unsent_bytes;
};

/// A rank without messages sends a keepalive every quarter of `peer_timeout`. A host counts as lost
/// when it has sent nothing for `peer_timeout`, not even its kernel's acknowledgments, so a stopped
/// process is not lost. The time counts from the first call of `set_time`. It starts again after a
/// pause of at least a quarter of the timeout, because the hosts of a stopped job resume one by
/// one. A peer whose connection ends without a goodbye is lost at once, as is one to which nothing
/// can be sent: it would wait for the message forever.
class SocketTransport : public Transport {
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
  };

  bool move(Peer& peer, std::uint32_t events, const Receiver& receive);
  void watch(Peer& peer, int operation);
  void after_sending(Peer& peer);
  void send_keepalives();
  void check_silence();
  void lose(const std::vector<int>& ranks, std::string reason);
  void hang_up(Peer& peer);

  SocketOptions options_;
  node::FileDescriptor epoll_;
  node::NotInherited not_inherited_{epoll_.get()};
  std::vector<Peer> peers_{};
  std::optional<Failure> loss_{};
  TimePoint now_{};
  bool has_begun_ = false;  // the time was set
  TimePoint next_keepalive_ = TimePoint::max();
  TimePoint next_check_ = TimePoint::max();
};

}  // namespace kolo::internal::transport
