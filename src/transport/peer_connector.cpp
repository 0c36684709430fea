#include "transport/peer_connector.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "node/error_codes.hpp"

namespace kolo::internal::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// After this time without an answer the next address is tried too.
constexpr milliseconds between_calls{250};

// Strangers that say nothing: more are not kept.
constexpr std::size_t most_answered = 256;

node::FileDescriptor open_socket(const SocketAddress& address) {
  return node::FileDescriptor(
      ::socket(address.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
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

SocketMeeting::SocketMeeting(int rank, const Secret& secret, const Listeners& listeners,
                             std::vector<Caller> callers, std::vector<Callee> callees)
    : rank_(rank), secret_(secret), listeners_(listeners), awaited_(std::move(callers)) {
  for (Callee& callee : callees) {
    Call call{.callee = std::move(callee)};
    if (call.callee.addresses.empty()) call.failures = "it has no address to be called at";
    calls_.push_back(std::move(call));
  }
}

bool SocketMeeting::complete() const {
  return awaited_.empty() && std::ranges::all_of(calls_, &Call::done);
}

bool SocketMeeting::step(nanoseconds most) {
  const TimePoint now = steady_clock::now();
  for (Call& call : calls_)
    if (!call.done && now >= call.next_at) call_next(call, now);
  if (complete()) return true;
  wait(most);
  accept_all();
  for (Talk& talk : answered_) answer(talk);
  answered_.remove_if([](const Talk& talk) { return talk.over; });
  for (Call& call : calls_) {
    for (Talk& talk : call.talks)
      if (!call.done && !talk.over) advance(call, talk);
    if (call.done) call.talks.clear();
    call.talks.remove_if([](const Talk& talk) { return talk.over; });
  }
  return complete();
}

void SocketMeeting::wait(nanoseconds most) {
  std::vector<pollfd> waiting;
  const auto add = [&](int socket, short events) {
    waiting.push_back({.fd = socket, .events = events, .revents = 0});
  };
  if (!awaited_.empty())
    for (const node::FileDescriptor& socket : listeners_.sockets()) add(socket.get(), POLLIN);
  for (const Talk& talk : answered_) add(talk.socket.get(), POLLIN);
  const TimePoint now = steady_clock::now();
  for (const Call& call : calls_) {
    for (const Talk& talk : call.talks)
      add(talk.socket.get(), static_cast<short>(talk.connecting ? POLLOUT : POLLIN));
    if (!call.done) most = std::min(most, nanoseconds(call.next_at - now));
  }
  const auto clamped = std::max(most, nanoseconds(0));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(clamped);
  const timespec timeout{.tv_sec = seconds.count(), .tv_nsec = (clamped - seconds).count()};
  static_cast<void>(::ppoll(waiting.data(), waiting.size(), &timeout, nullptr));
}

void SocketMeeting::accept_all() {
  if (awaited_.empty()) return;
  for (const node::FileDescriptor& listener : listeners_.sockets()) {
    for (;;) {
      node::FileDescriptor socket(
          ::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket.valid()) break;
      if (answered_.size() == most_answered) answered_.pop_front();
      answered_.push_back({.socket = std::move(socket)});
    }
  }
}

void SocketMeeting::answer(Talk& talk) {
  Greeting greeting{};
  while (!talk.over && hear(talk, greeting)) {
    const auto caller = std::ranges::find(awaited_, greeting.from, &Caller::rank);
    const GreetingKind wanted = talk.rank < 0 ? GreetingKind::hello : GreetingKind::chosen;
    if (!is_right(greeting, wanted) || caller == awaited_.end() ||
        (talk.rank >= 0 && talk.rank != greeting.from)) {
      talk.over = true;
    } else if (wanted == GreetingKind::hello) {
      talk.rank = greeting.from;
      talk.over = !say(talk, talk.rank, GreetingKind::welcome);
    } else {
      do_not_delay(talk.socket.get());
      connections_.push_back({talk.rank, std::move(talk.socket)});
      awaited_.erase(caller);
      talk.over = true;
    }
  }
}

void SocketMeeting::call_next(Call& call, TimePoint now) {
  call.next_at = now + between_calls;
  const std::vector<SocketAddress>& addresses = call.callee.addresses;
  if (call.next == addresses.size()) {
    // All were tried; those that have failed at once are tried again.
    if (call.talks.empty()) call.next = 0;
    return;
  }
  if (call.next == 0) call.failures.clear();
  Talk& talk = call.talks.emplace_back(
      Talk{.socket = open_socket(addresses[call.next]), .with = addresses[call.next]});
  ++call.next;
  const SystemAddress to = talk.with.to_system();
  if (talk.socket.valid() && ::connect(talk.socket.get(), to.get(), to.length) == 0)
    return connected(call, talk);
  if (talk.socket.valid() && errno == EINPROGRESS) {
    talk.connecting = true;
  } else {
    fail(call, talk, node::error_text(errno));
  }
}

void SocketMeeting::connected(Call& call, Talk& talk) {
  talk.connecting = false;
  do_not_delay(talk.socket.get());
  if (!say(talk, call.callee.rank, GreetingKind::hello)) fail(call, talk, node::error_text(errno));
}

void SocketMeeting::fail(Call& call, Talk& talk, const std::string& why) {
  talk.over = true;
  call.failures +=
      fmt::format("{}{}: {}", call.failures.empty() ? "" : ", ", to_string(talk.with), why);
  // The next address need not wait.
  if (call.next < call.callee.addresses.size()) call.next_at = {};
}

void SocketMeeting::advance(Call& call, Talk& talk) {
  if (talk.connecting) {
    pollfd ready{.fd = talk.socket.get(), .events = POLLOUT, .revents = 0};
    if (::poll(&ready, 1, 0) <= 0) return;
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(talk.socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    return error == 0 ? connected(call, talk) : fail(call, talk, node::error_text(error));
  }
  Greeting greeting{};
  if (!hear(talk, greeting)) {
    if (talk.over) fail(call, talk, "it hung up");
    return;
  }
  if (!is_right(greeting, GreetingKind::welcome) || greeting.from != call.callee.rank)
    return fail(call, talk, "somebody else answers");
  if (!say(talk, call.callee.rank, GreetingKind::chosen))
    return fail(call, talk, node::error_text(errno));
  connections_.push_back({call.callee.rank, std::move(talk.socket)});
  talk.over = true;
  call.done = true;
}

bool SocketMeeting::say(const Talk& talk, int to, GreetingKind kind) const {
  Greeting greeting{.secret = {}, .from = rank_, .to = to, .kind = kind};
  const std::size_t half = kind == GreetingKind::welcome ? greeting.secret.size() : 0;
  std::memcpy(greeting.secret.data(), secret_.data() + half, greeting.secret.size());
  // It has room in the empty buffer of a new connection.
  return ::send(talk.socket.get(), &greeting, sizeof greeting, MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof greeting);
}

bool SocketMeeting::is_right(const Greeting& greeting, GreetingKind kind) const {
  const std::size_t half = kind == GreetingKind::welcome ? greeting.secret.size() : 0;
  return greeting.kind == kind && greeting.to == rank_ &&
         std::memcmp(greeting.secret.data(), secret_.data() + half, greeting.secret.size()) == 0;
}

bool SocketMeeting::hear(Talk& talk, Greeting& greeting) {
  const ssize_t bytes = ::recv(talk.socket.get(), talk.heard.data() + talk.bytes_heard,
                               talk.heard.size() - talk.bytes_heard, 0);
  if (bytes < 0) {
    talk.over = errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
    return false;
  }
  talk.over = bytes == 0;
  talk.bytes_heard += static_cast<std::size_t>(bytes);
  if (talk.over || talk.bytes_heard < talk.heard.size()) return false;
  std::memcpy(&greeting, talk.heard.data(), sizeof greeting);
  talk.bytes_heard = 0;
  return true;
}

std::string SocketMeeting::problem() const {
  std::string text;
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
  for (const Call& call : calls_) {
    if (call.done) continue;
    std::string why = call.failures;
    for (const Talk& talk : call.talks)
      why += fmt::format("{}{}: {}", why.empty() ? "" : ", ", to_string(talk.with),
                         talk.connecting ? "no connection" : "no answer");
    add(fmt::format("cannot reach rank {} on host {} ({})", call.callee.rank, call.callee.host,
                    why));
  }
  for (const Caller& caller : awaited_)
    add(fmt::format("was not called by rank {} on host {}", caller.rank, caller.host));
  return text;
}

}  // namespace kolo::internal::transport
