// SPDX-License-Identifier: Apache-2.0
#include "transport/peer_connector.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/process_limits.hpp"
#include "node/error_codes.hpp"
#include "transport/sockets.hpp"

namespace kolo::internal::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// An address that does not answer within this time no longer holds up the next address.
constexpr milliseconds between_calls{250};

// The maximum number of accepted connections without a complete handshake, unless more ranks are to
// call, who may do so at once. Beyond it, one is dropped, so that a port scan cannot exhaust the
// descriptors.
constexpr std::size_t max_answered = 256;
// The maximum per step. Strangers may call faster than this rank accepts, so a step that accepted
// until nobody is left might never end.
constexpr int max_accepts = 64;

}  // namespace

Listeners::Listeners(const std::vector<SocketAddress>& addresses, const PortRange& range) {
  const auto listen_in_range = [&](SocketAddress at) {
    if (at.port != 0 || !range.is_set()) return listen_on(at.to_system());
    node::FileDescriptor socket;
    for (int port = range.first; port <= range.last && !socket.valid(); ++port) {
      at.port = static_cast<std::uint16_t>(port);
      socket = listen_on(at.to_system());
    }
    return socket;
  };
  for (const SocketAddress& address : addresses) {
    node::FileDescriptor socket = listen_in_range(address);
    const SocketAddress at = socket.valid() ? address_of(socket.get()) : SocketAddress{};
    if (at.family == AF_UNSPEC) continue;
    addresses_.push_back(at);
    sockets_.push_back(std::move(socket));
  }
}

PeerConnector::PeerConnector(int rank, const Secret& secret, const Listeners& listeners,
                             std::vector<Caller> callers, std::vector<Callee> callees,
                             Parties::Kind kind, Connect connect)
    : kind_(kind),
      rank_(rank),
      secret_(secret),
      listeners_(listeners),
      connect_(std::move(connect)),
      awaited_(std::move(callers)) {
  for (Callee& callee : callees) {
    calls_.push_back({.callee = std::move(callee)});
  }
}

bool PeerConnector::complete() const {
  return awaited_.empty() && std::ranges::all_of(calls_, &Call::done);
}

bool PeerConnector::step(nanoseconds timeout) {
  const TimePoint now = steady_clock::now();
  for (Call& call : calls_)
    if (!call.done && now >= call.next_at) call_next(call, now);
  if (complete()) return true;
  wait(timeout);
  answer_all();  // before others are accepted, who may take the places of those who have just
                 // spoken
  accept_all();
  answer_all();
  for (Call& call : calls_) {
    for (Attempt& attempt : call.attempts)
      if (!call.done && !attempt.over) advance(call, attempt);
    if (call.done) call.attempts.clear();
    call.attempts.remove_if([](const Attempt& attempt) { return attempt.over; });
  }
  return complete();
}

void PeerConnector::wait(nanoseconds timeout) {
  std::vector<pollfd> waiting;
  const auto add = [&](int socket, short events) {
    waiting.push_back({.fd = socket, .events = events, .revents = 0});
  };
  if (!awaited_.empty())
    for (const node::FileDescriptor& socket : listeners_.sockets()) add(socket.get(), POLLIN);
  for (const Attempt& attempt : answered_) add(attempt.socket.get(), POLLIN);
  const TimePoint now = steady_clock::now();
  for (const Call& call : calls_) {
    for (const Attempt& attempt : call.attempts)
      add(attempt.socket.get(), static_cast<short>(attempt.connecting ? POLLOUT : POLLIN));
    if (!call.done) timeout = std::min(timeout, nanoseconds(call.next_at - now));
  }
  const auto left = std::chrono::ceil<milliseconds>(std::max(timeout, nanoseconds(0)));
  static_cast<void>(::poll(waiting.data(), waiting.size(), static_cast<int>(left.count())));
}

void PeerConnector::accept_all() {
  if (awaited_.empty()) return;
  const std::size_t most = std::max(awaited_.size(), descriptors_for_strangers(max_answered));
  for (std::size_t at = 0; at < listeners_.sockets().size(); ++at) {
    for (int i = 0; i < max_accepts; ++i) {
      node::FileDescriptor socket = accept_connection(listeners_.sockets()[at].get());
      if (!socket.valid()) break;
      if (answered_.size() >= most) drop_stranger();
      const Parties parties{.kind = kind_, .callee = rank_, .at = listeners_.addresses()[at]};
      answered_.push_back({.socket = std::move(socket),
                           .handshake = Handshake(Handshake::Side::callee, secret_, parties)});
    }
  }
}

/// Drops the oldest connection of the callers who have not said who they are; or, if these are few,
/// of those who claim the rank that most claim. Anyone can claim a rank, so whoever fills the
/// places with connections of one kind closes his own.
void PeerConnector::drop_stranger() {
  std::size_t silent = 0;
  std::map<int, std::size_t> claims;
  for (const Attempt& attempt : answered_) {
    const int rank = attempt.handshake->peer();
    rank < 0 ? ++silent : ++claims[rank];
  }
  const auto most =
      std::ranges::max_element(claims, {}, [](const auto& one) { return one.second; });
  const bool all_differ = most == claims.end() || most->second == 1;
  const bool are_silent = silent > 0 && (2 * silent >= answered_.size() || all_differ);
  answered_.erase(std::ranges::find_if(answered_, [&](const Attempt& attempt) {
    const int rank = attempt.handshake->peer();
    return are_silent ? rank < 0 : rank == most->first;
  }));
}

void PeerConnector::answer_all() {
  for (Attempt& attempt : answered_) answer(attempt);
  answered_.remove_if([](const Attempt& attempt) { return attempt.over; });
}

void PeerConnector::answer(Attempt& attempt) {
  while (const auto message = receive(attempt)) {
    Handshake& handshake = *attempt.handshake;
    const auto reply = handshake.answer(*message);
    const auto caller = std::ranges::find(awaited_, handshake.peer(), &Caller::rank);
    if (!reply || caller == awaited_.end()) {
      attempt.over = true;
    } else if (!send(attempt, *reply)) {
      attempt.over = true;
    } else if (handshake.is_complete()) {
      disable_delay(attempt.socket.get());
      connections_.push_back({handshake.peer(), std::move(attempt.socket), handshake.keys()});
      awaited_.erase(caller);
      attempt.over = true;
    }
  }
}

void PeerConnector::call_next(Call& call, TimePoint now) {
  call.next_at = now + between_calls;
  const std::vector<SocketAddress>& addresses = call.callee.addresses;
  if (addresses.empty()) return;
  const std::size_t at = call.next++ % addresses.size();
  if (std::ranges::find(call.attempts, at, &Attempt::address) != call.attempts.end()) return;
  const SocketAddress& address = addresses[at];
  Connecting connecting = connect_ ? connect_(address) : begin_to_connect(address.to_system());
  const Parties parties{.kind = kind_, .caller = rank_, .callee = call.callee.rank, .at = address};
  Attempt& attempt = call.attempts.emplace_back(
      Attempt{.socket = std::move(connecting.socket),
              .address = at,
              .connecting = connecting.error == EINPROGRESS,
              .handshake = Handshake(Handshake::Side::caller, secret_, parties)});
  if (connecting.error == 0)
    connected(call, attempt);
  else if (!attempt.connecting)
    fail(call, attempt, error_text(connecting.error));
}

void PeerConnector::connected(Call& call, Attempt& attempt) {
  attempt.connecting = false;
  disable_delay(attempt.socket.get());
  if (!send(attempt, attempt.handshake->begin())) fail(call, attempt, error_text(errno));
}

void PeerConnector::fail(Call& call, Attempt& attempt, const std::string& why) {
  attempt.over = true;
  call.failures[attempt.address] = why;
  // Try the next address at once, until all were tried.
  if (call.next % call.callee.addresses.size() != 0) call.next_at = {};
}

void PeerConnector::advance(Call& call, Attempt& attempt) {
  if (attempt.connecting) {
    const auto error = end_of_connecting(attempt.socket.get(), nanoseconds(0));
    if (!error) return;
    return *error == 0 ? connected(call, attempt) : fail(call, attempt, error_text(*error));
  }
  const auto message = receive(attempt);
  if (!message) {
    if (attempt.over) fail(call, attempt, "it hung up");
    return;
  }
  const auto reply = attempt.handshake->answer(*message);
  if (!reply) return fail(call, attempt, "another process answers");
  if (!send(attempt, *reply)) return fail(call, attempt, error_text(errno));
  if (!attempt.handshake->is_complete()) return;
  connections_.push_back({call.callee.rank, std::move(attempt.socket), attempt.handshake->keys()});
  attempt.over = true;
  call.done = true;
}

bool PeerConnector::send(const Attempt& attempt, const Handshake::Bytes& message) {
  // The send buffer of a new connection is empty, so a message fits as a whole.
  return ::send(attempt.socket.get(), message.data(), message.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(message.size());
}

std::optional<std::span<const std::byte>> PeerConnector::receive(Attempt& attempt) {
  if (attempt.over) return std::nullopt;
  // Takes no more than the message: the first frame may follow it.
  const std::span message = std::span(attempt.received).first(attempt.handshake->awaited_bytes());
  const std::span missing = message.subspan(attempt.bytes_received);
  const ssize_t bytes = ::recv(attempt.socket.get(), missing.data(), missing.size(), 0);
  if (bytes < 0) {
    attempt.over = errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
    return std::nullopt;
  }
  attempt.over = bytes == 0;
  attempt.bytes_received += static_cast<std::size_t>(bytes);
  if (attempt.over || attempt.bytes_received < message.size()) return std::nullopt;
  attempt.bytes_received = 0;
  return message;
}

std::vector<int> PeerConnector::descriptors() const {
  std::vector<int> sockets;
  for (const Attempt& attempt : answered_) sockets.push_back(attempt.socket.get());
  for (const Call& call : calls_)
    for (const Attempt& attempt : call.attempts) sockets.push_back(attempt.socket.get());
  return sockets;
}

std::vector<int> PeerConnector::missing() const {
  std::vector<int> ranks;
  for (const Call& call : calls_)
    if (!call.done) ranks.push_back(call.callee.rank);
  for (const Caller& caller : awaited_) ranks.push_back(caller.rank);
  return ranks;
}

std::string PeerConnector::problem() const {
  std::string text;
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
  for (const Call& call : calls_) {
    if (call.done) continue;
    std::map<std::size_t, std::string> states = call.failures;
    for (const Attempt& attempt : call.attempts)
      states.try_emplace(attempt.address, attempt.connecting ? "no connection" : "no answer");
    std::string why = call.callee.addresses.empty() ? "it has no reachable address" : "";
    for (const auto& [address, state] : states)
      why += fmt::format("{}{}: {}", why.empty() ? "" : ", ",
                         to_string(call.callee.addresses[address]), state);
    add(fmt::format("cannot reach rank {} on host {} ({})", call.callee.rank, call.callee.host,
                    why));
  }
  for (const Caller& caller : awaited_)
    add(fmt::format("received no connection from rank {} on host {}", caller.rank, caller.host));
  return text;
}

}  // namespace kolo::internal::transport
