// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/tcp_server.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/process_limits.hpp"
#include "node/error_codes.hpp"
#include "node/new_descriptor.hpp"
#include "node/random.hpp"

namespace kolo::internal::rendezvous {
namespace {

using namespace std::chrono_literals;

// The socket of a closing connection stays open for this time, so that its last message can arrive.
constexpr Time patience_to_close = 5s;
// A limit per pass, so that existing connections are served before more are accepted.
constexpr int max_accepts = 64;
constexpr std::size_t max_events = 256;  // per pass
// The link of descriptors that belong to no client, in the events of the epoll descriptor.
constexpr Link no_client = 0;
// The delay before the next attempt to accept a connection if no descriptors are left.
constexpr int retry_ms = 100;

constexpr const char* cannot_know_users =
    "the kernel does not say which users hold connections, and this job has no secret, so other "
    "users "
    "of this host could join it; to prevent this, set KOLO_RENDEZVOUS_SECRET to the same 64 hex "
    "digits on all processes";

void signal_event(int event) {
  const std::uint64_t one = 1;
  static_cast<void>(::write(event, &one, sizeof one));
}

bool control(int events, int operation, int descriptor, std::uint32_t which, Link link) {
  epoll_event event{};
  event.events = which;
  event.data.u64 = link;
  return ::epoll_ctl(events, operation, descriptor, &event) == 0;
}

ServerOptions affordable(ServerOptions options) {
  options.max_strangers = descriptors_for_strangers(options.max_strangers);
  return options;
}

/// From the proof on, messages may be as long as those of the admitted: what a process tells a
/// standby before its welcome lists all ranks.
void authenticate(MessageStream& connection, const transport::FrameKeys& keys) {
  connection.authenticate(keys);
  connection.set_max_bytes(max_payload + max_handshake);
}

/// Half as many as there may be strangers whose connections are open.
std::ptrdiff_t affordable_leaving(const ServerOptions& options) {
  return static_cast<std::ptrdiff_t>(affordable(options).max_strangers / 2);
}

}  // namespace

TcpServer::TcpServer(const ServerOptions& options, const transport::Endpoint& at,
                     std::function<void(LogLevel, const std::string&)> write_note,
                     std::function<void(const AgentsChanged&)> change_agents,
                     std::function<void()> on_rule)
    : silence_(options.lease),
      end_timeout_(options.end_timeout),
      max_leaving_(affordable_leaving(options)),
      server_(affordable(options), random_number),
      write_note_(std::move(write_note)),
      change_agents_(std::move(change_agents)),
      on_rule_(std::move(on_rule)),
      listeners_(transport::listen_at(at, options.port_range)),
      port_(transport::address_of(listeners_.front().get()).port),
      has_secret_(options.secret != Secret{}),
      wake_(node::new_descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")),
      events_(node::new_descriptor(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")) {
  not_inherited_.emplace_back(events_.get());
  bool is_watched = control(events_.get(), EPOLL_CTL_ADD, wake_.get(), EPOLLIN, no_client);
  for (const node::FileDescriptor& listener : listeners_) {
    not_inherited_.emplace_back(listener.get());
    is_watched &= control(events_.get(), EPOLL_CTL_ADD, listener.get(), EPOLLIN, no_client);
  }
  if (!is_watched) node::throw_system_error("epoll_ctl");
}

void TcpServer::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  signal_event(wake_.get());
}

void TcpServer::call(std::function<void(Server&, Time)> what) {
  const std::lock_guard lock(mutex_);
  calls_.push_back(std::move(what));
  signal_event(wake_.get());
}

/// Makes the calls of other threads. False if the server is to stop.
bool TcpServer::take_calls() {
  std::uint64_t count = 0;
  if (::read(wake_.get(), &count, sizeof count) != sizeof count) return true;
  make_calls();
  const std::lock_guard lock(mutex_);
  return !stopped_;
}

void TcpServer::make_calls() {
  std::vector<std::function<void(Server&, Time)>> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(calls_);
  }
  for (const auto& what : calls) what(server_, now());
  carry_out();
}

JobEnd TcpServer::run() {
  const auto all_are_gone = [&] {
    return std::ranges::none_of(clients_, [](const auto& entry) { return entry.second.welcome; });
  };
  while (!(end_ && (all_are_gone() || now() > end_at_))) {
    wait();
    if (!take_calls()) return end_.value_or(JobEnd{1, "the server was stopped"});
    accept_all();
    const std::vector<Link> ended = std::exchange(ended_links_, {});
    for (const Link link : std::exchange(ready_, {})) serve(link);
    for (const Link link : ended) end(link);
    if (const auto next = server_.next_time(); next && now() >= *next) server_.on_time(now());
    carry_out();
    drop_closed();
  }
  end_->waits = server_.waits();
  return *end_;
}

// `run` calls this at least every `silence_ / 8`. So a gap of more than `silence_ / 4` means that
// this process was stopped. A standby may have taken over meanwhile, which the server must rule out
// before it acts.
Time TcpServer::now() {
  const Clock::time_point now = Clock::now();
  const Time gap = now - std::exchange(looked_, now);
  if (gap > silence_ / 4) {
    stopped_for_ += gap;
    server_.on_suspension();
  }
  return now - begin_ - stopped_for_;
}

int TcpServer::milliseconds_to_wait() {
  std::optional<Time> next = server_.next_time();
  const auto consider = [&](Time time) {
    if (!next || time < *next) next = time;
  };
  if (end_) consider(end_at_);
  if (!due_.empty() || !ended_links_.empty()) return 0;
  for (const Link link : closing_)
    if (const auto client = clients_.find(link); client != clients_.end())
      consider(client->second.until);
  if (!accepts_) consider(now() + std::chrono::milliseconds(retry_ms));
  // Bound the wait, so that `now` can tell a wait from a stop of this process.
  const auto max_wait = std::chrono::ceil<std::chrono::milliseconds>(silence_ / 8).count();
  if (!next) return static_cast<int>(max_wait);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, max_wait));
}

void TcpServer::wait() {
  watch_listeners();
  std::array<epoll_event, max_events> events;
  const int count =
      ::epoll_wait(events_.get(), events.data(), events.size(), milliseconds_to_wait());
  ready_ = std::exchange(due_, {});
  for (int at = 0; at < count; ++at)
    if (const Link link = events[static_cast<std::size_t>(at)].data.u64; link != no_client)
      ready_.push_back(link);
  // Links are numbered in the order of their connections.
  std::ranges::sort(ready_);
}

/// Ignores the listeners while the process cannot have more connections.
void TcpServer::watch_listeners() {
  if (std::exchange(watches_listeners_, accepts_) == accepts_) return;
  for (const node::FileDescriptor& listener : listeners_)
    control(events_.get(), EPOLL_CTL_MOD, listener.get(), accepts_ ? EPOLLIN : 0U, no_client);
}

void TcpServer::watch(Link link, Client& client) {
  if (client.connection.closed()) return due_.push_back(link);
  const bool is_full = !client.connection.flushed();
  if (std::exchange(client.is_full, is_full) == is_full) return;
  control(events_.get(), EPOLL_CTL_MOD, client.connection.descriptor(),
          EPOLLIN | (is_full ? EPOLLOUT : 0U), link);
}

/// Removes the socket from the epoll descriptor first: while a process is being started, a copy of
/// the socket may exist there, and closing it here would leave it watched.
void TcpServer::erase(std::map<Link, Client>::iterator client) {
  control(events_.get(), EPOLL_CTL_DEL, client->second.connection.descriptor(), 0, no_client);
  clients_.erase(client);
}

void TcpServer::accept_all() {
  accepts_ = std::ranges::all_of(listeners_, [&](const node::FileDescriptor& listener) {
    return accept_from(listener.get());
  });
}

bool TcpServer::accept_from(int listener) {
  for (int i = 0; i < max_accepts; ++i) {
    node::FileDescriptor socket = transport::accept_connection(listener);
    if (!socket.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      const bool accepts = errno == EAGAIN || errno == EWOULDBLOCK;
      if (!accepts && !std::exchange(said_full_, true))
        write_note_(LogLevel::warning,
                    fmt::format("new processes must wait: {}. The server has {} connections; raise "
                                "the limit on open files (`ulimit -Hn`)",
                                error_text(errno), clients_.size()));
      return accepts;
    }
    transport::tune(socket.get(), silence_);
    const std::string from = transport::peer_name(socket.get());
    const Link link = ++last_link_;
    const transport::OtherEnd end = users_.at_other_end_of(socket.get());
    if (end == transport::OtherEnd::unknown && !has_secret_ && !std::exchange(said_unknown_, true))
      write_note_(LogLevel::warning, cannot_know_users);
    if (!control(events_.get(), EPOLL_CTL_ADD, socket.get(), EPOLLIN, link)) continue;
    clients_.emplace(link, Client{.connection = MessageStream(std::move(socket), max_handshake)});
    // Read the messages of the connection that is to be closed, since its proof may have arrived.
    if (const auto evicted = server_.next_evicted()) serve(*evicted);
    server_.on_open(link, from, now());
    if (is_foreign(end, has_secret_)) server_.on_other_user(link, now());
    carry_out();
  }
  return true;
}

void TcpServer::serve(Link link) {
  const auto found = clients_.find(link);
  if (found == clients_.end()) return;
  Client& client = found->second;
  client.connection.write();
  client.connection.read([&](const Message& message) {
    make_calls();
    if (client.closing) return true;  // drop messages after the close
    server_.on_message(link, message, now());
    carry_out();
    return !client.closing;
  });
  if (!client.connection.closed()) return watch(link, client);
  if (std::exchange(client.ended, true)) return;
  control(events_.get(), EPOLL_CTL_DEL, client.connection.descriptor(), 0, no_client);
  ended_links_.push_back(link);
}

/// A process may end because of what another one has already said, and the event of that message
/// may come later in the same pass or in the next one. So a connection ends one pass after its
/// close was seen.
void TcpServer::end(Link link) {
  const auto found = clients_.find(link);
  if (found == clients_.end()) return;
  make_calls();
  const std::string reason = found->second.connection.reason();
  const bool known = !found->second.closing;
  erase(found);
  if (known) server_.on_close(link, reason, now());
  carry_out();
}

void TcpServer::carry_out() {
  std::shared_ptr<const Message> last;
  transport::SharedBytes encoded;  // the last message
  for (const Action& action : server_.take()) {
    if (const auto* send = std::get_if<Send>(&action)) {
      const auto found = clients_.find(send->link);
      if (found == clients_.end()) continue;
      if (last != send->message) encoded = std::make_shared<const Bytes>(encode(*send->message));
      last = send->message;
      found->second.connection.send(encoded);
      watch(found->first, found->second);
      found->second.welcome |=
          std::holds_alternative<Welcome>(*last) || std::holds_alternative<Succession>(*last);
    } else if (const auto* trusted = std::get_if<Authenticate>(&action)) {
      if (const auto found = clients_.find(trusted->link); found != clients_.end())
        authenticate(found->second.connection, trusted->keys);
    } else if (const auto* close = std::get_if<Close>(&action)) {
      const auto found = clients_.find(close->link);
      if (found == clients_.end()) continue;
      if (!std::exchange(found->second.closing, true)) closing_.push_back(found->first);
      found->second.until = now() + patience_to_close;
    } else if (const auto* note = std::get_if<Note>(&action)) {
      write_note_(note->level, note->text);
    } else if (const auto* changed = std::get_if<AgentsChanged>(&action)) {
      if (change_agents_) change_agents_(*changed);
    } else if (std::holds_alternative<Ruling>(action)) {
      if (on_rule_) on_rule_();
    } else if (const auto* finish = std::get_if<Finish>(&action)) {
      end_ = JobEnd{finish->status, finish->reason, finish->restarts, finish->last_lines, ""};
      has_processes_ = finish->has_processes;
      ended_ = true;
      end_at_ = now() + end_timeout_;
    }
  }
}

void TcpServer::drop_closed() {
  std::erase_if(closing_, [&](Link link) { return !clients_.contains(link); });
  auto leaving = std::ranges::count_if(
      closing_, [&](Link link) { return !clients_.find(link)->second.welcome; });
  std::erase_if(closing_, [&](Link link) {
    const auto found = clients_.find(link);
    Client& client = found->second;
    const bool is_surplus = !client.welcome && leaving > max_leaving_ && leaving-- > 0;
    if (!is_surplus && !client.connection.flushed() && now() < client.until) return false;
    // Close only the sending side for now. Closing the socket with unread data would reset the
    // connection, and the peer could lose the last message.
    if (!is_surplus) ::shutdown(client.connection.descriptor(), SHUT_WR);
    if (!is_surplus && now() < client.until) return false;
    erase(found);
    return true;
  });
}

}  // namespace kolo::internal::rendezvous
