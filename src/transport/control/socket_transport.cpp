// SPDX-License-Identifier: Apache-2.0
#include "transport/control/socket_transport.hpp"

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
#include "transport/sockets.hpp"

namespace kolo::internal::transport {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// A connection that is away for longer is worth a line in the log before it is back.
constexpr std::chrono::seconds long_break{1};

/// The time since the peer's kernel last acknowledged data. A kernel acknowledges even if the
/// process that owns the connection is stopped, so this tells dead hosts from stopped processes.
nanoseconds ask_kernel(int socket) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return nanoseconds::max();
  return milliseconds(info.tcpi_last_ack_recv);
}

std::string why_broken(const std::string& error) { return error.empty() ? "closed" : error; }

template <typename Peers>
auto& find_peer(Peers& peers, int rank) {
  const auto found =
      std::ranges::find_if(peers, [&](const auto& peer) { return peer.edge.rank() == rank; });
  if (found == peers.end())
    throw BackendError(fmt::format("there is no connection to rank {}", rank));
  return *found;
}

/// Where the peer listens, at the address at which this rank sees it. A rank that is seen at none
/// of its addresses is behind a translation of addresses; where it listens is then unknown.
SocketAddress find_door(const SocketPeer& peer) {
  const SystemAddress end = peer_address(peer.socket.get());
  if (end.length == 0) return {};
  const SocketAddress seen = SocketAddress::from(end.get());
  for (const SocketAddress& address : peer.addresses)
    if (address.family == seen.family && address.bytes == seen.bytes &&
        (!peer.is_called || address.port == seen.port))
      return address;
  return {};
}

}  // namespace

SocketTransport::SocketTransport(std::vector<SocketPeer> peers, SocketOptions options)
    : options_(std::move(options)), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_.valid()) node::throw_system_error("epoll_create1");
  if (!options_.acknowledged_ago) options_.acknowledged_ago = ask_kernel;
  std::vector<Reconnector::Peer> routes;
  for (SocketPeer& peer : peers) {
    routes.push_back({.rank = peer.rank,
                      .host = peer.host,
                      .keys = peer.keys,
                      .is_called = peer.is_called,
                      .addresses = peer.addresses,
                      .door = find_door(peer)});
    peers_.push_back({SocketEdge(peer.rank, std::move(peer.socket), peer.keys, options_.max_unsent,
                                 options_.window),
                      std::move(peer.host), std::move(peer.ranks_of_host)});
  }
  for (Peer& peer : peers_) watch(peer, EPOLL_CTL_ADD);
  if (!options_.reconnect) return;
  Reconnector::Edges& edges = *this;
  reconnector_ = std::make_unique<Reconnector>(*options_.reconnect, std::move(routes), edges);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = peers_.size();
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, reconnector_->descriptor(), &event) != 0)
    node::throw_system_error("epoll_ctl");
}

void SocketTransport::set_time(TimePoint now, nanoseconds pause) {
  now_ = now;
  if (options_.peer_timeout.count() == 0) return;
  if (std::exchange(has_begun_, true) && pause < options_.peer_timeout / 4) return;
  for (Peer& peer : peers_) {
    peer.received_at = now;
    if (peer.broken_at) peer.broken_at = now;
  }
  next_keepalive_ = now + options_.peer_timeout / 4;
  next_check_ = now + options_.peer_timeout / 2;
}

void SocketTransport::send(int peer, Message message) {
  Peer& to = find_peer(peers_, peer);
  to.edge.send(std::move(message));
  to.sent_lately = true;
  after_sending(to);
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
    if (event.data.u64 == peers_.size()) continue;
    moved |= move(peers_[event.data.u64], event.events, receive);
  }
  // Last, since it may replace the connections that the events are about.
  for (int i = 0; i < count; ++i)
    if (events[static_cast<std::size_t>(i)].data.u64 == peers_.size()) reconnect();
  if (now_ >= next_keepalive_) send_keepalives();
  if (now_ >= next_check_) check_silence();
  return moved;
}

bool SocketTransport::move(Peer& peer, std::uint32_t events, const Receiver& receive) {
  bool moved = false;
  if ((events & EPOLLOUT) != 0) moved |= peer.edge.write();
  if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) {
    // An edge closes only after all its data was read, so a loss is never reported ahead of
    // messages.
    moved |= peer.edge.read(receive);
    peer.received_at = now_;
    peer.reported = false;
    if (std::exchange(peer.called_again, false)) reconnector_->stop(peer.edge.rank());
  }
  after_sending(peer);
  if (peer.edge.closed()) connection_ended(peer);
  return moved;
}

void SocketTransport::connection_ended(Peer& peer) {
  hang_up(peer);
  if (peer.edge.received_goodbye()) return;
  if (peer.edge.is_broken() && reconnector_ != nullptr && !loss_) {
    await_return(peer);
    reconnector_->begin(peer.edge.rank());
    return;
  }
  lose({peer.edge.rank()}, text_of_end(peer));
  peer.edge.give_up();
}

void SocketTransport::await_return(Peer& peer) {
  peer.edge.cut();  // the other side may not know yet
  peer.broken_at = now_;
  peer.broken_by = peer.edge.error();
  peer.break_reported = false;
  peer.called_again = false;
  peer.cut = false;
  peer.watched_for_room = false;
  if (options_.peer_timeout.count() > 0)
    next_check_ = std::min(next_check_, now_ + options_.peer_timeout);
}

void SocketTransport::reconnect() {
  if (reconnector_ == nullptr) return;
  reconnector_->step();
  for (Peer& peer : peers_) {
    if (!peer.broken_at || now_ - *peer.broken_at < long_break) continue;
    if (std::exchange(peer.break_reported, true)) continue;
    const std::string limit =
        options_.peer_timeout.count() == 0
            ? ""
            : fmt::format(", for {:.3g} s", duration<double>(options_.peer_timeout).count());
    log(LogLevel::warning,
        fmt::format("the connection to rank {} on host {} has broken ({}); waiting for it to come "
                    "back{}",
                    peer.edge.rank(), peer.host, why_broken(peer.broken_by), limit));
  }
}

std::string SocketTransport::text_of_end(const Peer& peer) {
  const std::string& error = peer.broken_at ? peer.broken_by : peer.edge.error();
  return fmt::format("the connection to rank {} on host {} was closed{}", peer.edge.rank(),
                     peer.host, error.empty() ? "" : ": " + error);
}

bool SocketTransport::can_resume(int rank, std::uint64_t taken) const {
  const SocketEdge& edge = find_peer(peers_, rank).edge;
  return !loss_ && (!edge.closed() || edge.is_broken()) && edge.can_resume(taken);
}

std::uint64_t SocketTransport::interrupt(int rank) {
  Peer& peer = find_peer(peers_, rank);
  if (!peer.edge.closed()) {
    const char* const why = peer.called_again ? "nothing came from it" : "as the other side says";
    hang_up(peer);
    peer.edge.interrupt();
    await_return(peer);
    peer.broken_by = why;
  }
  return peer.edge.taken();
}

void SocketTransport::resume(int rank, node::FileDescriptor socket, std::uint64_t taken) {
  Peer& peer = find_peer(peers_, rank);
  const std::size_t again = peer.edge.resume(std::move(socket), taken);
  log(LogLevel::warning,
      fmt::format("the connection to rank {} on host {} had broken ({}) and is back after {:.2g} "
                  "s; {} messages are sent again",
                  rank, peer.host, why_broken(peer.broken_by),
                  duration<double>(now_ - peer.broken_at.value_or(now_)).count(), again));
  peer.broken_at.reset();
  peer.called_again = false;
  peer.received_at = now_;
  watch(peer, EPOLL_CTL_ADD);
  after_sending(peer);
}

void SocketTransport::end(int rank) {
  Peer& peer = find_peer(peers_, rank);
  lose({rank}, text_of_end(peer) + ", and its host refuses another one: its process has ended");
  hang_up(peer);
  peer.edge.give_up();
}

void SocketTransport::watch(Peer& peer, int operation) {
  epoll_event event{};
  event.events = EPOLLIN | (peer.watched_for_room ? EPOLLOUT : 0U);
  event.data.u64 = static_cast<std::uint64_t>(&peer - peers_.data());
  if (::epoll_ctl(epoll_.get(), operation, peer.edge.descriptor(), &event) != 0)
    node::throw_system_error("epoll_ctl");
}

/// Cuts a connection that has lost a message. The next `poll` reads what has arrived and finds the
/// edge closed.
void SocketTransport::after_sending(Peer& peer) {
  if (peer.edge.closed()) return;
  if (peer.edge.cannot_send() && !std::exchange(peer.cut, true)) peer.edge.cut();
  if (peer.watched_for_room == peer.edge.needs_room()) return;
  peer.watched_for_room = peer.edge.needs_room();
  watch(peer, EPOLL_CTL_MOD);
}

void SocketTransport::send_keepalives() {
  next_keepalive_ = now_ + options_.peer_timeout / 4;
  for (Peer& peer : peers_) {
    if (!std::exchange(peer.sent_lately, false) && peer.edge.flushed()) peer.edge.send_keepalive();
    after_sending(peer);
  }
}

/// The time since the peer's host has shown that it lives.
nanoseconds SocketTransport::silence(const Peer& peer) const {
  if (peer.broken_at) return now_ - *peer.broken_at;
  const nanoseconds silent = now_ - peer.received_at;
  if (silent < options_.peer_timeout / 2) return silent;
  return std::min(silent, options_.acknowledged_ago(peer.edge.descriptor()));
}

void SocketTransport::check_silence() {
  const nanoseconds patience = options_.peer_timeout;
  next_check_ = now_ + patience;
  for (Peer& peer : peers_) {
    SocketEdge& edge = peer.edge;
    if ((edge.closed() && !edge.is_broken()) || edge.received_goodbye()) continue;
    const nanoseconds host_silent = silence(peer);
    if (host_silent >= patience) {
      lose_host(peer, host_silent);
      continue;
    }
    const bool is_quiet = host_silent >= patience / 2;
    next_check_ = std::min(next_check_, now_ + (is_quiet ? patience : patience / 2) - host_silent);
    if (reconnector_ != nullptr && !peer.broken_at &&
        is_quiet != std::exchange(peer.called_again, is_quiet)) {
      is_quiet ? reconnector_->begin(edge.rank()) : reconnector_->stop(edge.rank());
    }
    // The host acknowledges keepalives, but its process sends nothing. The process may be stopped
    // in a debugger, so it does not count as lost, and only a warning is logged.
    const nanoseconds silent = now_ - peer.received_at;
    if (!peer.broken_at && silent >= patience && host_silent < patience / 2 &&
        !std::exchange(peer.reported, true))
      log(LogLevel::warning,
          fmt::format("rank {} has sent nothing for {:.3g} s, but its host {} answers: its process "
                      "may be stopped",
                      edge.rank(), duration<double>(silent).count(), peer.host));
  }
}

void SocketTransport::lose_host(Peer& peer, nanoseconds silent) {
  const double seconds = duration<double>(silent).count();
  lose(peer.ranks_of_host,
       peer.broken_at
           ? fmt::format("{}, and did not come back within {:.3g} s", text_of_end(peer), seconds)
           : fmt::format("host {} sent nothing for {:.3g} s", peer.host, seconds));
  if (reconnector_ != nullptr) reconnector_->stop(peer.edge.rank());
  hang_up(peer);
  peer.edge.give_up();
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
  reconnector_.reset();
  for (Peer& peer : peers_) hang_up(peer);
  options_.peer_timeout = {};
  next_keepalive_ = next_check_ = TimePoint::max();
}

void SocketTransport::close(nanoseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (Peer& peer : peers_) peer.edge.say_goodbye();
  for (;;) {
    if (reconnector_ != nullptr) reconnector_->step();
    std::vector<pollfd> waiting = advance_goodbyes();
    const auto left =
        std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now());
    if (waiting.empty() || left.count() <= 0) return;
    static_cast<void>(::poll(waiting.data(), waiting.size(), static_cast<int>(left.count())));
  }
}

/// Sends and receives without `poll`. Returns the descriptors of the peers that must still take
/// this rank's goodbye, or say their own.
std::vector<pollfd> SocketTransport::advance_goodbyes() {
  std::vector<pollfd> waiting;
  const auto wait_for = [&](int descriptor, bool room) {
    waiting.push_back({.fd = descriptor,
                       .events = static_cast<short>(room ? POLLIN | POLLOUT : POLLIN),
                       .revents = 0});
  };
  bool any_broken = false;
  for (Peer& peer : peers_) {
    SocketEdge& edge = peer.edge;
    edge.write();
    while (edge.read([](int, std::span<const std::byte>) {})) {
    }
    if (edge.closed() && !peer.broken_at) connection_ended(peer);
    if (edge.is_broken()) any_broken = true;
    if (edge.closed() || (edge.flushed() && edge.received_goodbye())) continue;
    wait_for(edge.descriptor(), edge.needs_room());
  }
  if (any_broken && reconnector_ != nullptr) wait_for(reconnector_->descriptor(), false);
  return waiting;
}

}  // namespace kolo::internal::transport
