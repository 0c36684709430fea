// SPDX-License-Identifier: Apache-2.0
#include "transport/control/reconnector.hpp"

#include <sodium.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "node/error_codes.hpp"
#include "transport/sockets.hpp"

namespace kolo::internal::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// Between two looks at the times of calls and answers that are under way.
constexpr milliseconds tick{10};
// A call without an answer is given up after this time, since a packet that was lost early is sent
// again late: after an outage, the first call that succeeds begins at most so much later.
constexpr milliseconds longest_call{2000};
// The pause after a call that has failed, or a try whether a rank listens; it doubles each time.
// The first ones are short, because a process that ends may close its connection before its
// listener.
constexpr milliseconds first_pause{10};
constexpr milliseconds longest_pause{250};
// A caller that has not completed its handshake by now is dropped.
constexpr milliseconds longest_answer{5000};
// The strangers that are turned away per step.
constexpr int max_turned_away = 64;

milliseconds longer(milliseconds pause) {
  return std::clamp(2 * pause, first_pause, longest_pause);
}

std::vector<Caller> callers_among(const std::vector<Reconnector::Peer>& peers) {
  std::vector<Caller> callers;
  for (const Reconnector::Peer& peer : peers)
    if (!peer.is_called) callers.push_back({peer.rank, peer.host});
  return callers;
}

/// The tag of a record that is sent under keys of a handshake. The key of the first connection is
/// hashed with it.
FrameTag tag_of_record(const FrameKey& fresh, const FrameKey& first, std::uint64_t taken) {
  return tag_of(fresh, 0, std::as_bytes(std::span(&taken, 1)), first);
}

}  // namespace

struct Reconnector::Record {
  std::uint64_t taken;
  FrameTag tag;
};

Reconnector::Reconnector(ReconnectOptions options, std::vector<Peer> peers, Edges& edges)
    : options_(std::move(options)),
      edges_(edges),
      answers_(options_.rank, options_.secret, *options_.listeners, callers_among(peers), {},
               Parties::Kind::resumption),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (!epoll_.valid()) node::throw_system_error("epoll_create1");
  if (!timer_.valid()) node::throw_system_error("timerfd_create");
  not_inherited_.emplace_back(epoll_.get());
  watch(timer_.get(), EPOLLIN);
  // Edge-triggered: a caller that cannot be accepted for want of descriptors must not keep the rank
  // awake.
  for (const node::FileDescriptor& listener : options_.listeners->sockets())
    watch(listener.get(), EPOLLIN | EPOLLET);
  // Ranks that were called have listened. The others are tried once, now: a firewall may refuse
  // calls that nobody has needed so far.
  for (Peer& peer : peers) {
    Route& route = routes_.emplace_back();
    route.peer = std::move(peer);
    route.knows_door = route.peer.is_called;
    if (!route.knows_door) knock(route, steady_clock::now());
  }
  prepare_to_wait();
}

void Reconnector::watch(int descriptor, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    node::throw_system_error("epoll_ctl");
  not_inherited_.emplace_back(descriptor);
}

Reconnector::Route* Reconnector::find(int rank) {
  const auto rank_of = [](const Route& route) { return route.peer.rank; };
  const auto found = std::ranges::find(routes_, rank, rank_of);
  return found == routes_.end() ? nullptr : &*found;
}

void Reconnector::begin(int rank) {
  Route* const route = find(rank);
  if (route == nullptr || std::exchange(route->broken, true)) return;
  // The answer to a call before the break still tells that the rank listens.
  if (route->knock.valid() && end_of_connecting(route->knock.get(), nanoseconds(0)) == 0)
    route->knows_door = true;
  route->knock = {};
  route->between_knocks = route->between_calls = {};
  const TimePoint now = steady_clock::now();
  call(*route, now);
  knock(*route, now);
  prepare_to_wait();
}

void Reconnector::stop(int rank) {
  Route* const route = find(rank);
  if (route == nullptr) return;
  route->broken = false;
  route->call.reset();
  route->chosen.reset();
  route->next_call = {};
  route->knock = {};
}

void Reconnector::step() {
  std::array<epoll_event, 16> events;
  static_cast<void>(
      ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), /*timeout=*/0));
  std::uint64_t ticks = 0;
  static_cast<void>(!::read(timer_.get(), &ticks, sizeof ticks));
  const TimePoint now = steady_clock::now();
  answer(now);
  for (Route& route : routes_) {
    if (route.broken) call(route, now);
    if (route.broken || route.knock.valid()) knock(route, now);
  }
  prepare_to_wait();
}

void Reconnector::answer(TimePoint now) {
  const bool has_callers =
      std::ranges::any_of(routes_, [](const Route& route) { return !route.peer.is_called; });
  if (!has_callers) return turn_away();
  answers_.step(nanoseconds(0));
  answers_.drop_callers_before(now - longest_answer);
  for (Connection& made : answers_.take()) {
    Route* const route = find(made.rank);
    answers_.await({made.rank, route->peer.host});
    candidates_.push_back({.rank = made.rank, .socket = std::move(made.socket), .keys = made.keys});
  }
  for (Candidate& candidate : candidates_) {
    take_record(candidate);
    candidate.over |= now - candidate.since > longest_answer;
  }
  candidates_.remove_if([](const Candidate& candidate) { return candidate.over; });
}

/// Nobody calls this rank again, but others try whether it listens.
void Reconnector::turn_away() {
  for (const node::FileDescriptor& listener : options_.listeners->sockets())
    for (int i = 0; i < max_turned_away; ++i)
      if (!accept_connection(listener.get()).valid()) break;
}

/// The caller has chosen this connection once its record is here.
void Reconnector::take_record(Candidate& candidate) {
  Route& route = *find(candidate.rank);
  const auto taken = receive_record(candidate, route.peer.keys);
  if (!taken) return;
  candidate.over = true;
  if (!edges_.can_resume(candidate.rank, *taken)) return;
  const std::uint64_t own = edges_.interrupt(candidate.rank);
  route.broken = true;
  // If this fails, the caller calls again.
  if (send_record(candidate, route.peer.keys, own))
    resume(route, std::move(candidate.socket), *taken);
}

void Reconnector::call(Route& route, TimePoint now) {
  if (!route.peer.is_called) return;
  if (route.chosen) return await_answer(route, now);
  if (route.call != nullptr && now - route.called_at > longest_call) route.call.reset();
  if (route.call == nullptr) {
    if (now < route.next_call) return;
    route.called_at = now;
    const Callee callee{route.peer.rank, route.peer.host, route.peer.addresses};
    route.call = std::make_unique<PeerConnector>(
        options_.rank, options_.secret, *options_.listeners, std::vector<Caller>(),
        std::vector{callee}, Parties::Kind::resumption, options_.connect);
  }
  const bool is_done = route.call->step(nanoseconds(0));
  if (!is_done && (now < route.next_call || !route.call->descriptors().empty())) return;
  route.next_call = now + std::exchange(route.between_calls, longer(route.between_calls));
  if (!is_done) return route.call->call_again();
  std::vector<Connection> made = route.call->take();
  route.call.reset();
  Candidate& chosen = route.chosen.emplace(Candidate{.rank = made.front().rank,
                                                     .socket = std::move(made.front().socket),
                                                     .keys = made.front().keys});
  if (!send_record(chosen, route.peer.keys, edges_.interrupt(route.peer.rank)))
    route.chosen.reset();
}

void Reconnector::await_answer(Route& route, TimePoint now) {
  Candidate& chosen = *route.chosen;
  const auto taken = receive_record(chosen, route.peer.keys);
  if (taken && edges_.can_resume(route.peer.rank, *taken))
    return resume(route, std::move(chosen.socket), *taken);
  if (taken || chosen.over || now - chosen.since > longest_call) route.chosen.reset();
}

/// Tries whether the rank still listens.
void Reconnector::knock(Route& route, TimePoint now) {
  if (route.peer.door.family == AF_UNSPEC) return;
  int error = EINPROGRESS;
  if (route.knock.valid()) {
    error = end_of_connecting(route.knock.get(), nanoseconds(0)).value_or(EINPROGRESS);
  } else {
    if (now - route.knocked_at < route.between_knocks) return;
    route.knocked_at = now;
    route.between_knocks = longer(route.between_knocks);
    Connecting begun = begin_to_connect(route.peer.door.to_system());
    route.knock = std::move(begun.socket);
    error = begun.error;
  }
  if (error == EINPROGRESS && now - route.knocked_at <= longest_call) return;
  route.knock = {};
  if (error == 0) route.knows_door = true;
  if (error != ECONNREFUSED || !route.knows_door || !route.broken) return;
  stop(route.peer.rank);
  edges_.end(route.peer.rank);
}

void Reconnector::resume(Route& route, node::FileDescriptor socket, std::uint64_t taken) {
  stop(route.peer.rank);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
  edges_.resume(route.peer.rank, std::move(socket), taken);
}

/// Looks again when something comes on a connection that is under way, or at the next tick.
void Reconnector::prepare_to_wait() {
  const bool is_busy =
      answers_.is_answering() || !candidates_.empty() ||
      std::ranges::any_of(routes_, [](const Route& r) { return r.broken || r.knock.valid(); });
  if (is_busy) watch_progress();
  if (is_busy == std::exchange(timer_runs_, is_busy)) return;
  itimerspec times{};
  if (is_busy) times.it_interval.tv_nsec = times.it_value.tv_nsec = nanoseconds(tick).count();
  ::timerfd_settime(timer_.get(), 0, &times, nullptr);
}

/// What is closed leaves the epoll by itself. Without room for another one, the timer serves.
void Reconnector::watch_progress() {
  std::vector<int> sockets = answers_.descriptors();
  for (const Candidate& candidate : candidates_) sockets.push_back(candidate.socket.get());
  for (const Route& route : routes_) {
    if (route.knock.valid()) sockets.push_back(route.knock.get());
    if (route.chosen) sockets.push_back(route.chosen->socket.get());
    if (route.call != nullptr)
      std::ranges::copy(route.call->descriptors(), std::back_inserter(sockets));
  }
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLET;
  for (const int socket : sockets)
    static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event));
}

bool Reconnector::send_record(const Candidate& to, const FrameKeys& keys, std::uint64_t taken) {
  const Record record{taken, tag_of_record(to.keys.sent, keys.sent, taken)};
  static_assert(sizeof record == sizeof to.received);
  // The send buffer of a new connection has room.
  return ::send(to.socket.get(), &record, sizeof record, MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof record);
}

/// The number in the record, once it is here. The candidate is over if it is a wrong one, or the
/// other side has hung up.
std::optional<std::uint64_t> Reconnector::receive_record(Candidate& from, const FrameKeys& keys) {
  if (from.over) return std::nullopt;
  const std::span missing = std::span(from.received).subspan(from.bytes_received);
  const ssize_t bytes = ::recv(from.socket.get(), missing.data(), missing.size(), 0);
  if (bytes <= 0) {
    const bool waits = bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    from.over = !waits;
    return std::nullopt;
  }
  from.bytes_received += static_cast<std::size_t>(bytes);
  if (from.bytes_received < from.received.size()) return std::nullopt;
  Record record;
  std::memcpy(&record, from.received.data(), sizeof record);
  const FrameTag right = tag_of_record(from.keys.received, keys.received, record.taken);
  if (sodium_memcmp(right.data(), record.tag.data(), right.size()) == 0) return record.taken;
  from.over = true;
  return std::nullopt;
}

}  // namespace kolo::internal::transport
