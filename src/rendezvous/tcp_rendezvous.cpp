// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/tcp_rendezvous.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <set>
#include <thread>
#include <utility>

#include "kolo/error.hpp"
#include "transport/machine.hpp"

namespace kolo::internal::rendezvous {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// The connection counts as lost after this time without a sign of life from the server's host.
constexpr std::chrono::seconds server_silence{30};
// A random secret has fewer in less than one of 10^9 draws.
constexpr std::size_t min_different_bytes = 20;
constexpr std::chrono::milliseconds between_calls{20};  // if the server has hung up
constexpr const char* advice = "if another program listens there, use another port";

[[nodiscard]] std::string text_in(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

/// Waits until a connection is readable, or the first one writable if data is unsent; at most for
/// `timeout`.
void wait_on(const MessageStream& connection, const StandbyLink* standby,
             std::chrono::nanoseconds timeout) {
  const bool writes = !connection.flushed();
  std::array<pollfd, 2> waits{
      {{.fd = connection.closed() ? -1 : connection.descriptor(),
        .events = static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN),
        .revents = 0},
       {.fd = standby != nullptr && standby->is_open() ? standby->descriptor() : -1,
        .events = POLLIN,
        .revents = 0}}};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  const std::int64_t most = PatientDeadline::max_turn.count();
  ::poll(waits.data(), waits.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, most)));
}

/// A server that has ended holds its end no more, and hides nobody.
bool has_hung_up(int socket) {
  char next = 0;
  return ::recv(socket, &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

}  // namespace

std::string to_hex(const Secret& secret) {
  std::string text;
  for (const std::byte byte : secret) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

Secret secret_from_hex(const std::string& text) {
  Secret secret{};
  const bool is_hex = text.size() == 2 * secret.size() &&
                      text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
  if (!is_hex)
    throw InvalidArgument(fmt::format("the secret has {} characters, not {} hex digits",
                                      text.size(), 2 * secret.size()));
  for (std::size_t i = 0; i < secret.size(); ++i)
    secret[i] = static_cast<std::byte>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  const std::set<std::byte> different(secret.begin(), secret.end());
  if (different.size() < min_different_bytes)
    throw InvalidArgument(fmt::format(
        "the secret has only {} different byte values, so it can be guessed; draw one with "
        "`head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n'`",
        different.size()));
  return secret;
}

std::optional<ClientOptions> read_environment(const std::string& version) {
  const std::string server = text_in(server_variable);
  if (server.empty()) return std::nullopt;
  ClientOptions options{.server = transport::parse_endpoint(server), .version = version};
  options.secret = secret_from_hex(text_in(secret_variable));
  if (const std::string standby = text_in(standby_variable); !standby.empty())
    options.standby = transport::parse_endpoint(standby);
  const std::string process = text_in(process_variable);
  const auto [end, error] =
      std::from_chars(process.data(), process.data() + process.size(), options.process);
  if (error != std::errc() || end != process.data() + process.size() || options.process == 0)
    throw InvalidArgument(fmt::format("{}='{}' is not a process number (a positive integer)",
                                      process_variable, process));
  return options;
}

TcpRendezvous::TcpRendezvous(const ClientOptions& options)
    : options_(options),
      connection_(transport::connect_to(options.server, options.connect_timeout,
                                        options_.while_connecting)),
      introduction_(make_introduction()) {
  introduce();
  PatientDeadline deadline(options_.connect_timeout);
  std::optional<PatientDeadline> call_until;  // since the server has hung up for the first time
  while (!welcome_ || refusal_) {
    if (lost_ && !welcome_) {
      if (!call_until) call_until.emplace(options_.call_again_for);
      if (!call_until->is_over()) {
        call_again(*call_until);
        continue;
      }
      throw BackendError(fmt::format("{}; {}", *refusal_, advice));
    }
    throw_if_over();
    if (deadline.is_over())
      throw BackendError(fmt::format("{} does not answer as a rendezvous server; {}",
                                     to_string(options_.server), advice));
    wait_on(connection_, nullptr, deadline.left());
    if (call_until) static_cast<void>(call_until->left());  // as in each turn
    receive();
    if (!welcome_ && options_.while_connecting) options_.while_connecting();
  }
  open_standby();
}

Hello TcpRendezvous::make_hello() const {
  return {.role = Role::process,
          .process = options_.process,
          .host = transport::host_name(),
          .machine = transport::machine_name(),
          .pid = ::getpid(),
          .wanted_rank = options_.wanted_rank,
          .version = options_.version};
}

Introduction TcpRendezvous::make_introduction() const {
  return {options_.secret, make_hello(), to_string(options_.server)};
}

void TcpRendezvous::introduce() {
  transport::tune(connection_.descriptor(), server_silence);
  introduction_.begin(connection_);
}

/// Calls a server that has hung up before its welcome.
void TcpRendezvous::call_again(PatientDeadline& until) {
  std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(until.left(), between_calls));
  connection_ =
      MessageStream(transport::connect_to(options_.server, until, options_.while_connecting));
  introduction_ = make_introduction();
  refusal_.reset();
  lost_ = false;
  introduce();
}

const Roster& TcpRendezvous::join(std::uint64_t commit, bool orderly) {
  receive();
  interruption_.reset();
  announcement_.reset();
  results_.clear();
  sequence_ = 0;
  joined_for_ = roster_.generation;
  joining_ = Join{roster_.generation, commit, orderly};
  send(*joining_);
  wait_for([&] { return roster_.generation > joined_for_; }, "for the session's other processes");
  joining_.reset();
  return roster_;
}

std::vector<Bytes> TcpRendezvous::gather_all(std::span<const std::byte> mine) {
  if (mine.size() > max_payload)
    throw InvalidArgument(
        fmt::format("{} bytes are more than the {} that a rank can send by the "
                    "rendezvous server",
                    mine.size(), max_payload));
  check();
  const std::uint64_t sequence = sequence_++;
  send(Contribution{roster_.generation, sequence, Bytes(mine.begin(), mine.end())});
  wait_for([&] { return results_.contains(sequence); }, "for the other ranks to start the session");
  std::vector<Payload> payloads = std::move(results_.extract(sequence).mapped());
  std::vector<Bytes> all;
  for (Payload& payload : payloads) all.push_back(std::move(payload.bytes));
  if (all.size() != roster_.members.size())
    throw BackendError("the rendezvous server sent an invalid result");
  return all;
}

std::vector<int> TcpRendezvous::ranks_of_machine() {
  std::vector<int> ranks;
  const std::vector<Member>& members = roster_.members;
  const std::string& own = members.at(static_cast<std::size_t>(rank_)).machine;
  for (int rank = 0; rank < size(); ++rank)
    if (members[static_cast<std::size_t>(rank)].machine == own) ranks.push_back(rank);
  return ranks;
}

void TcpRendezvous::check() {
  receive();
  throw_if_over();
}

const std::optional<Interruption>& TcpRendezvous::interruption() {
  receive();
  return interruption_;
}

bool TcpRendezvous::interrupted() {
  receive();
  return interruption_ || refusal_ || end_;
}

bool TcpRendezvous::is_closed() {
  receive();
  return connection_.closed() && !awaits_standby();
}

const std::optional<std::string>& TcpRendezvous::announcement() {
  receive();
  return announcement_;
}

void TcpRendezvous::report_failure(const std::vector<int>& ranks, const std::string& reason,
                                   bool stalled) {
  send(FailureReport{roster_.generation, {ranks.begin(), ranks.end()}, reason, stalled});
}

void TcpRendezvous::declare_begun() { send(Begun{roster_.generation}); }

void TcpRendezvous::declare_complete() {
  completed_ = true;
  send(Completed{roster_.generation});
  flush();
}

void TcpRendezvous::leave() {
  send(Leave{roster_.generation});
  flush();
}

void TcpRendezvous::fail(const std::string& reason) {
  send(Failed{reason});
  flush();
}

void TcpRendezvous::report_own_failure(const std::string& reason) {
  send(SessionFailed{reason});
  flush();
}

void TcpRendezvous::report_missed(const std::vector<int>& ranks, const std::string& operation) {
  send(RanksMissed{roster_.generation, {ranks.begin(), ranks.end()}, operation});
  connection_.write();
}

/// Waits, at most for a second, until all messages are sent, since the process may end right after
/// its last message.
void TcpRendezvous::flush() {
  const auto until = steady_clock::now() + 1s;
  while (!connection_.flushed() && !connection_.closed() && steady_clock::now() < until) {
    wait_on(connection_, standby_.get(), until - steady_clock::now());
    receive();
  }
}

void TcpRendezvous::wait_for(const std::function<bool()>& what, const char* doing) {
  PatientDeadline deadline(options_.call_timeout);
  while (true) {
    receive();
    if (what()) return;
    throw_if_over();
    if (deadline.is_over())
      throw BackendError(
          fmt::format("the rendezvous server at {} does not answer: this process waited {} s {}",
                      to_string(options_.server),
                      std::chrono::duration<double>(options_.call_timeout).count(), doing));
    wait_on(connection_, standby_.get(), deadline.left());
  }
}

void TcpRendezvous::receive() {
  if (standby_ && standby_->has_taken_over()) change_server();
  reopen_standby();
  connection_.write();
  connection_.read([&](const Message& message) {
    take(message);
    return true;
  });
  lost_ = connection_.closed() && !refusal_ && !end_ && !awaits_standby();
  if (lost_)
    refusal_ = fmt::format("the rendezvous server at {} is gone: {}", to_string(options_.server),
                           connection_.reason());
}

void TcpRendezvous::take(const Message& message) {
  if (!introduction_.passes(connection_, message)) {
    if (!introduction_.problem().empty()) refusal_ = introduction_.problem();
  } else if (const auto* welcome = std::get_if<Welcome>(&message)) {
    process_ = welcome->process;
    elastic_ = welcome->elastic;
    lease_ = std::min<std::chrono::nanoseconds>(welcome->lease, 1h);
    welcome_ = true;
    const transport::OtherEnd server = users_.at_other_end_of(connection_.descriptor());
    if (is_foreign(server, options_.secret != Secret{}) && !has_hung_up(connection_.descriptor()))
      refusal_ = fmt::format(
          "the server at {} belongs to another user of this host, or hides its user; use another "
          "port",
          to_string(options_.server));
  } else if (const auto* roster = std::get_if<Roster>(&message)) {
    roster_ = *roster;
    const auto own = std::ranges::find(roster_.members, process_, &Member::process);
    rank_ = static_cast<int>(own - roster_.members.begin());
    if (age_ == 0) age_ = roster_.generation;
    settled_ = false;
  } else if (const auto* result = std::get_if<Result>(&message)) {
    if (result->generation == roster_.generation)
      results_.emplace(result->sequence, result->payloads);
  } else if (const auto* over = std::get_if<Interruption>(&message)) {
    // Ignore an interruption of an earlier session that arrives while this process joins the next.
    if (over->generation == roster_.generation && over->generation > joined_for_)
      interruption_ = *over;
  } else if (const auto* change = std::get_if<Announcement>(&message)) {
    if (change->generation == roster_.generation && change->generation > joined_for_)
      announcement_ = change->reason;
  } else if (const auto* refusal = std::get_if<Refusal>(&message)) {
    refusal_ = fmt::format("the rendezvous server at {} refuses this process: {}",
                           to_string(options_.server), refusal->reason);
  } else if (const auto* end = std::get_if<End>(&message)) {
    if (end->superseded && standby_address_.length != 0)
      connection_.close(end->reason);
    else
      end_ = end->reason;
  }
}

void TcpRendezvous::throw_if_over() const {
  if (interruption_)
    throw PeerLeft(interruption_->reason, "",
                   {interruption_->ranks.begin(), interruption_->ranks.end()});
  if (refusal_) throw BackendError(*refusal_);
  if (end_) throw ShutDown(end_->empty() ? "the job is over" : "the job is over: " + *end_);
}

}  // namespace kolo::internal::rendezvous
