// SPDX-License-Identifier: Apache-2.0
#include "transport/socket_transport.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "base/log.hpp"
#include "kolo/error.hpp"
#include "node/error_codes.hpp"

namespace kolo::internal::transport {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

/// The time since the peer's kernel last acknowledged data. A kernel acknowledges even if the
/// process that owns the connection is stopped, so this tells dead hosts from stopped processes.
nanoseconds ask_kernel(int socket) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return nanoseconds::max();
  return milliseconds(info.tcpi_last_ack_recv);
}

}  // namespace

SocketTransport::SocketTransport(std::vector<SocketPeer> peers, SocketOptions options)
    : options_(std::move(options)), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_.valid()) node::throw_system_error("epoll_create1");
  if (!options_.acknowledged_ago) options_.acknowledged_ago = ask_kernel;
  for (SocketPeer& peer : peers)
    peers_.push_back({SocketEdge(peer.rank, std::move(peer.socket), peer.keys, options_.max_unsent),
                      std::move(peer.host), std::move(peer.ranks_of_host)});
  for (Peer& peer : peers_) watch(peer, EPOLL_CTL_ADD);
}

void SocketTransport::set_time(TimePoint now, nanoseconds pause) {
  now_ = now;
  if (options_.peer_timeout.count() == 0) return;
  if (std::exchange(has_begun_, true) && pause < options_.peer_timeout / 4) return;
  for (Peer& peer : peers_) peer.received_at = now;
  next_keepalive_ = now + options_.peer_timeout / 4;
  next_check_ = now + options_.peer_timeout;
}

void SocketTransport::send(int peer, Message message) {
  const auto rank_of = [](const Peer& other) { return other.edge.rank(); };
  const auto to = std::ranges::find(peers_, peer, rank_of);
  if (to == peers_.end())
    throw BackendError(fmt::format("there is no connection to rank {}", peer));
  to->edge.send(std::move(message));
  to->sent_lately = true;
  after_sending(*to);
}

bool SocketTransport::flushed() const {
  return std::ranges::all_of(peers_, [](const Peer& peer) { return peer.edge.flushed(); });
}

bool SocketTransport::poll(const Receiver& receive) {
  std::array<epoll_event, 16> events;
  const int count =
      ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), /*timeout=*/0);
  bool moved = false;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    moved |= move(peers_[event.data.u64], event.events, receive);
  }
  if (now_ >= next_keepalive_) send_keepalives();
  if (now_ >= next_check_) check_silence();
  return moved;
}

bool SocketTransport::move(Peer& peer, std::uint32_t events, const Receiver& receive) {
  bool moved = false;
  if ((events & EPOLLOUT) != 0) {
    moved |= peer.edge.write();
    after_sending(peer);
  }
  if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) == 0) return moved;
  // An edge closes only after all its data was read, so a loss is never reported ahead of messages.
  moved |= peer.edge.read(receive);
  peer.received_at = now_;
  peer.reported = false;
  if (!peer.edge.closed()) return moved;
  hang_up(peer);
  if (peer.edge.received_goodbye()) return true;
  const std::string& error = peer.edge.error();
  lose({peer.edge.rank()},
       fmt::format("the connection to rank {} on host {} was closed{}", peer.edge.rank(), peer.host,
                   error.empty() ? "" : ": " + error));
  return true;
}

void SocketTransport::watch(Peer& peer, int operation) {
  epoll_event event{};
  event.events = EPOLLIN | (peer.watched_for_room ? EPOLLOUT : 0U);
  event.data.u64 = static_cast<std::uint64_t>(&peer - peers_.data());
  if (::epoll_ctl(epoll_.get(), operation, peer.edge.descriptor(), &event) != 0)
    node::throw_system_error("epoll_ctl");
}

/// Cuts a connection that has lost a message. The next `poll` reads what has arrived, finds the
/// edge closed, and reports the loss with the error of sending.
void SocketTransport::after_sending(Peer& peer) {
  if (peer.edge.closed()) return;
  if (peer.edge.cannot_send() && !std::exchange(peer.cut, true)) peer.edge.cut();
  if (peer.watched_for_room != peer.edge.flushed()) return;
  peer.watched_for_room = !peer.edge.flushed();
  watch(peer, EPOLL_CTL_MOD);
}

void SocketTransport::send_keepalives() {
  next_keepalive_ = now_ + options_.peer_timeout / 4;
  for (Peer& peer : peers_) {
    if (!std::exchange(peer.sent_lately, false) && peer.edge.flushed()) peer.edge.send_keepalive();
    after_sending(peer);
  }
}

void SocketTransport::check_silence() {
  const nanoseconds patience = options_.peer_timeout;
  next_check_ = now_ + patience;
  for (Peer& peer : peers_) {
    SocketEdge& edge = peer.edge;
    if (edge.closed() || edge.received_goodbye()) continue;
    const nanoseconds silent = now_ - peer.received_at;
    const nanoseconds host_silent =
        silent < patience ? silent : std::min(silent, options_.acknowledged_ago(edge.descriptor()));
    if (host_silent >= patience) {
      lose(peer.ranks_of_host, fmt::format("host {} sent nothing for {:.3g} s", peer.host,
                                           duration<double>(host_silent).count()));
      hang_up(peer);
      edge.give_up();
      continue;
    }
    next_check_ = std::min(next_check_, now_ + patience - host_silent);
    // The host acknowledges keepalives, but its process sends nothing. The process may be stopped
    // in a debugger, so it does not count as lost, and only a warning is logged.
    if (silent >= patience && host_silent < patience / 2 && !std::exchange(peer.reported, true))
      log(LogLevel::warning,
          fmt::format("rank {} has sent nothing for {:.3g} s, but its host {} answers: its process "
                      "may be stopped",
                      edge.rank(), duration<double>(silent).count(), peer.host));
  }
}

void SocketTransport::lose(const std::vector<int>& ranks, std::string reason) {
  if (loss_) return;
  loss_ = {
      .kind = FailureKind::peer_left, .message = std::move(reason), .ranks = RankSet::of(ranks)};
}

/// Removes a closed connection from epoll, since its descriptor would stay readable forever.
void SocketTransport::hang_up(Peer& peer) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer.edge.descriptor(), nullptr);
}

void SocketTransport::abandon() {
  for (Peer& peer : peers_) hang_up(peer);
  options_.peer_timeout = {};
  next_keepalive_ = next_check_ = TimePoint::max();
}

void SocketTransport::close(nanoseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (Peer& peer : peers_) peer.edge.say_goodbye();
  for (;;) {
    std::vector<pollfd> waiting;
    for (Peer& peer : peers_) {
      SocketEdge& edge = peer.edge;
      edge.write();
      while (edge.read([](int, std::span<const std::byte>) {})) {
      }
      if (edge.closed() || (edge.flushed() && edge.received_goodbye())) continue;
      waiting.push_back({.fd = edge.descriptor(),
                         .events = static_cast<short>(edge.flushed() ? POLLIN : POLLIN | POLLOUT),
                         .revents = 0});
    }
    const auto left =
        std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now());
    if (waiting.empty() || left.count() <= 0) return;
    static_cast<void>(::poll(waiting.data(), waiting.size(), static_cast<int>(left.count())));
  }
}

}  // namespace kolo::internal::transport
