// SPDX-License-Identifier: Apache-2.0
#include "transport/peer_connector.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <span>
#include <string_view>

#include "node/error_codes.hpp"

namespace kolo::internal::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// After this time without an answer the next address is tried too.
constexpr milliseconds between_calls{250};

// Callers that have not introduced themselves: more are not kept.
constexpr std::size_t max_answered = 256;

node::FileDescriptor open_socket(const SocketAddress& address) {
  return node::FileDescriptor(
      ::socket(address.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

constexpr std::string_view proof_label = "kolo control connection";

std::array<std::byte, 16> draw_nonce() {
  std::random_device random;
  std::array<std::byte, 16> nonce{};
  for (std::byte& byte : nonce) byte = static_cast<std::byte>(random());
  return nonce;
}

/// Small messages leave at once.
void do_not_delay(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

Listeners::Listeners(const std::vector<SocketAddress>& addresses) {
  for (const SocketAddress& address : addresses) {
    node::FileDescriptor socket = open_socket(address);
    SystemAddress at = address.to_system();
    if (!socket.valid() || ::bind(socket.get(), at.get(), at.length) != 0 ||
        ::listen(socket.get(), SOMAXCONN) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&at.storage), &at.length) != 0)
      continue;
    addresses_.push_back(SocketAddress::from(at.get()));
    sockets_.push_back(std::move(socket));
  }
}

PeerConnector::PeerConnector(int rank, const Secret& secret, const Listeners& listeners,
                             std::vector<Caller> callers, std::vector<Callee> callees)
    : rank_(rank), secret_(secret), listeners_(listeners), awaited_(std::move(callers)) {
  for (Callee& callee : callees) {
    Call call{.callee = std::move(callee)};
    if (call.callee.addresses.empty()) call.failures = "it has no reachable address";
    calls_.push_back(std::move(call));
  }
}

bool PeerConnector::complete() const {
  return awaited_.empty() && std::ranges::all_of(calls_, &Call::done);
}

bool PeerConnector::step(nanoseconds most) {
  const TimePoint now = steady_clock::now();
  for (Call& call : calls_)
    if (!call.done && now >= call.next_at) call_next(call, now);
  if (complete()) return true;
  wait(most);
  accept_all();
  for (Handshake& handshake : answered_) answer(handshake);
  answered_.remove_if([](const Handshake& handshake) { return handshake.over; });
  for (Call& call : calls_) {
    for (Handshake& handshake : call.handshakes)
      if (!call.done && !handshake.over) advance(call, handshake);
    if (call.done) call.handshakes.clear();
    call.handshakes.remove_if([](const Handshake& handshake) { return handshake.over; });
  }
  return complete();
}

void PeerConnector::wait(nanoseconds most) {
  std::vector<pollfd> waiting;
  const auto add = [&](int socket, short events) {
    waiting.push_back({.fd = socket, .events = events, .revents = 0});
  };
  if (!awaited_.empty())
    for (const node::FileDescriptor& socket : listeners_.sockets()) add(socket.get(), POLLIN);
  for (const Handshake& handshake : answered_) add(handshake.socket.get(), POLLIN);
  const TimePoint now = steady_clock::now();
  for (const Call& call : calls_) {
    for (const Handshake& handshake : call.handshakes)
      add(handshake.socket.get(), static_cast<short>(handshake.connecting ? POLLOUT : POLLIN));
    if (!call.done) most = std::min(most, nanoseconds(call.next_at - now));
  }
  const auto timeout = std::chrono::ceil<milliseconds>(std::max(most, nanoseconds(0)));
  static_cast<void>(::poll(waiting.data(), waiting.size(), static_cast<int>(timeout.count())));
}

void PeerConnector::accept_all() {
  if (awaited_.empty()) return;
  for (const node::FileDescriptor& listener : listeners_.sockets()) {
    for (;;) {
      node::FileDescriptor socket(
          ::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket.valid()) break;
      if (answered_.size() == max_answered) answered_.pop_front();
      answered_.push_back({.socket = std::move(socket), .own = draw_nonce()});
    }
  }
}

void PeerConnector::answer(Handshake& handshake) {
  Greeting greeting{};
  while (!handshake.over && receive(handshake, greeting)) {
    const auto caller = std::ranges::find(awaited_, greeting.from, &Caller::rank);
    const GreetingKind wanted = handshake.rank < 0 ? GreetingKind::hello : GreetingKind::chosen;
    if (!is_right(handshake, greeting, wanted) || caller == awaited_.end() ||
        (handshake.rank >= 0 && handshake.rank != greeting.from)) {
      handshake.over = true;
    } else if (wanted == GreetingKind::hello) {
      handshake.rank = greeting.from;
      handshake.theirs = greeting.nonce;
      handshake.over = !send(handshake, handshake.rank, GreetingKind::welcome);
    } else {
      do_not_delay(handshake.socket.get());
      connections_.push_back({handshake.rank, std::move(handshake.socket)});
      awaited_.erase(caller);
      handshake.over = true;
    }
  }
}

void PeerConnector::call_next(Call& call, TimePoint now) {
  call.next_at = now + between_calls;
  const std::vector<SocketAddress>& addresses = call.callee.addresses;
  if (call.next == addresses.size()) {
    // All were tried; those that failed at once are tried again.
    if (call.handshakes.empty()) call.next = 0;
    return;
  }
  if (call.next == 0) call.failures.clear();
  Handshake& handshake =
      call.handshakes.emplace_back(Handshake{.socket = open_socket(addresses[call.next]),
                                             .with = addresses[call.next],
                                             .own = draw_nonce()});
  ++call.next;
  const SystemAddress to = handshake.with.to_system();
  if (handshake.socket.valid() && ::connect(handshake.socket.get(), to.get(), to.length) == 0)
    return connected(call, handshake);
  if (handshake.socket.valid() && errno == EINPROGRESS) {
    handshake.connecting = true;
  } else {
    fail(call, handshake, node::error_text(errno));
  }
}

void PeerConnector::connected(Call& call, Handshake& handshake) {
  handshake.connecting = false;
  do_not_delay(handshake.socket.get());
  if (!send(handshake, call.callee.rank, GreetingKind::hello))
    fail(call, handshake, node::error_text(errno));
}

void PeerConnector::fail(Call& call, Handshake& handshake, const std::string& why) {
  handshake.over = true;
  call.failures +=
      fmt::format("{}{}: {}", call.failures.empty() ? "" : ", ", to_string(handshake.with), why);
  // The next address need not wait.
  if (call.next < call.callee.addresses.size()) call.next_at = {};
}

void PeerConnector::advance(Call& call, Handshake& handshake) {
  if (handshake.connecting) {
    pollfd ready{.fd = handshake.socket.get(), .events = POLLOUT, .revents = 0};
    if (::poll(&ready, 1, 0) <= 0) return;
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(handshake.socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    return error == 0 ? connected(call, handshake) : fail(call, handshake, node::error_text(error));
  }
  Greeting greeting{};
  if (!receive(handshake, greeting)) {
    if (handshake.over) fail(call, handshake, "it hung up");
    return;
  }
  if (!is_right(handshake, greeting, GreetingKind::welcome) || greeting.from != call.callee.rank)
    return fail(call, handshake, "another process answers");
  handshake.theirs = greeting.nonce;
  if (!send(handshake, call.callee.rank, GreetingKind::chosen))
    return fail(call, handshake, node::error_text(errno));
  connections_.push_back({call.callee.rank, std::move(handshake.socket)});
  handshake.over = true;
  call.done = true;
}

bool PeerConnector::send(const Handshake& handshake, int to, GreetingKind kind) const {
  Greeting greeting{.nonce = handshake.own, .proof = {}, .from = rank_, .to = to, .kind = kind};
  if (kind != GreetingKind::hello)
    greeting.proof = prove(kind, handshake.own, handshake.theirs, rank_, to);
  // It has room in the empty buffer of a new connection.
  return ::send(handshake.socket.get(), &greeting, sizeof greeting, MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof greeting);
}

bool PeerConnector::is_right(const Handshake& handshake, const Greeting& greeting,
                             GreetingKind kind) const {
  if (greeting.kind != kind || greeting.to != rank_) return false;
  return kind == GreetingKind::hello ||
         is_same_digest(greeting.proof,
                        prove(kind, greeting.nonce, handshake.own, greeting.from, rank_));
}

/// The two proofs of a connection differ by the kind, so that none can be sent back as the other.
Digest PeerConnector::prove(GreetingKind kind, const Nonce& sender, const Nonce& receiver, int from,
                            int to) const {
  const std::array<std::int32_t, 3> who{static_cast<std::int32_t>(kind), from, to};
  return hmac_sha256(secret_, {std::as_bytes(std::span(proof_label)), std::as_bytes(std::span(who)),
                               sender, receiver});
}

bool PeerConnector::receive(Handshake& handshake, Greeting& greeting) {
  const ssize_t bytes =
      ::recv(handshake.socket.get(), handshake.received.data() + handshake.bytes_received,
             handshake.received.size() - handshake.bytes_received, 0);
  if (bytes < 0) {
    handshake.over = errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
    return false;
  }
  handshake.over = bytes == 0;
  handshake.bytes_received += static_cast<std::size_t>(bytes);
  if (handshake.over || handshake.bytes_received < handshake.received.size()) return false;
  std::memcpy(&greeting, handshake.received.data(), sizeof greeting);
  handshake.bytes_received = 0;
  return true;
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
    std::string why = call.failures;
    for (const Handshake& handshake : call.handshakes)
      why += fmt::format("{}{}: {}", why.empty() ? "" : ", ", to_string(handshake.with),
                         handshake.connecting ? "no connection" : "no answer");
    add(fmt::format("cannot reach rank {} on host {} ({})", call.callee.rank, call.callee.host,
                    why));
  }
  for (const Caller& caller : awaited_)
    add(fmt::format("received no connection from rank {} on host {}", caller.rank, caller.host));
  return text;
}

}  // namespace kolo::internal::transport
