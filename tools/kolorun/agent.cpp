// SPDX-License-Identifier: Apache-2.0
#include "agent.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <kolo/error.hpp>
#include <kolo/version.hpp>
#include <utility>

#include "node/new_descriptor.hpp"
#include "transport/machine.hpp"

namespace kolorun {
namespace {

using namespace std::chrono_literals;

// Time for the other processes after a failure: they notice it themselves, and report which
// operations failed.
constexpr std::chrono::seconds patience_after_failure{2};

// `timeout` and batch systems may send SIGTERM twice.
constexpr std::chrono::seconds repeated_signal{1};

bool told_to_end = false;

bool has_no_reader(int descriptor) {
  pollfd end{.fd = descriptor, .events = 0, .revents = 0};
  return ::poll(&end, 1, 0) > 0 && (end.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
}

}  // namespace

node::FileDescriptor open_signals() {
  // The default, because if SIGCHLD is ignored, the kernel does not keep the exit status of
  // children.
  ::signal(SIGCHLD, SIG_DFL);
  sigset_t handled;
  ::sigemptyset(&handled);
  for (const int signal :
       {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP, SIGALRM}) {
    struct ::sigaction before {};
    ::sigaction(signal, nullptr, &before);
    // SIGINT and SIGHUP stay ignored if they were: by nohup, or by a shell that runs kolorun in the
    // background.
    const bool ignored = before.sa_handler == SIG_IGN && (signal == SIGINT || signal == SIGHUP);
    if (!ignored) ::sigaddset(&handled, signal);
  }
  ::sigprocmask(SIG_BLOCK, &handled, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // writing then fails with EFBIG, and output is lost
  return node::new_descriptor(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd");
}

std::optional<int> next_signal(const node::FileDescriptor& signals) {
  static std::optional<std::chrono::steady_clock::time_point> sigterm_at;  // the last one
  static bool time_is_over = false;
  signalfd_siginfo info{};
  while (::read(signals.get(), &info, sizeof info) == sizeof info) {
    const auto signal = static_cast<int>(info.ssi_signo);
    told_to_end |= signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGALRM;
    if (signal == SIGALRM) {
      time_is_over = true;
      write_all(STDERR_FILENO, "kolorun: the time of --timeout is over\n");
      if (sigterm_at) continue;
      return SIGTERM;
    }
    if (signal != SIGTERM) return signal;
    const auto now = std::chrono::steady_clock::now();
    const bool is_same = sigterm_at ? now - *sigterm_at < repeated_signal : time_is_over;
    if (!sigterm_at || !is_same) sigterm_at = now;
    if (!is_same) return signal;
  }
  return std::nullopt;
}

bool is_told_to_end() { return told_to_end; }

void start_timeout(std::chrono::nanoseconds timeout) {
  if (timeout == std::chrono::nanoseconds{}) return;
  const auto microseconds = std::chrono::ceil<std::chrono::microseconds>(timeout).count();
  itimerval once{};
  once.it_value = {.tv_sec = microseconds / 1'000'000, .tv_usec = microseconds % 1'000'000};
  ::setitimer(ITIMER_REAL, &once, nullptr);
}

Agent::Agent(const Options& options, std::vector<transport::Endpoint> servers,
             std::function<void(int)> pass_signal, const node::FileDescriptor& signals)
    : options_(options),
      servers_(std::move(servers)),
      pass_signal_(std::move(pass_signal)),
      signals_(signals),
      number_(options.joining.number != 0 ? options.joining.number : any_agent_number()),
      lease_(options.server.lease) {}

int Agent::run() {
  connect(options_.server.start_timeout);
  while (!status_ || !children_.empty()) {
    // After the server was lost and all processes of this host have ended, the host can rejoin.
    if (!connected() && !status_ && children_.empty()) connect(options_.server.elastic_timeout);
    wait();
    take_signals();
    receive();
    reap();
    kill_due();
    if (!status_) keep_alive();
    copy_output();
  }
  // All processes have ended, so the rest of their output is in the pipes now.
  for (TaggedStream& stream : streams_) {
    static_cast<void>(stream.copy(/*all=*/true));
    stream.finish();
  }
  if (!last_words_.empty()) say(last_words_);
  return *status_;
}

int Agent::milliseconds_to_wait() const {
  auto next = Clock::now() + lease_ / 8;
  for (const auto& [pid, child] : children_)
    for (const auto& time : {child.end_at, child.kill_at})
      if (time) next = std::min(next, *time);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 10'000));
}

void Agent::wait() {
  if (status_ && children_.empty()) return;
  std::vector<pollfd> waits{{.fd = signals_.get(), .events = POLLIN, .revents = 0}};
  if (connected()) {
    const bool writes = !connection_->flushed();
    waits.push_back({.fd = connection_->descriptor(),
                     .events = static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN),
                     .revents = 0});
  }
  if (own_standby_ && may_change_server())
    waits.push_back({.fd = own_standby_->ruling, .events = POLLIN, .revents = 0});
  bool held = false;
  for (const TaggedStream& stream : streams_)
    if (!stream.is_held())
      waits.push_back({.fd = stream.descriptor(), .events = POLLIN, .revents = 0});
    else
      held = true;
  const int most = milliseconds_to_wait();
  ::poll(waits.data(), waits.size(), held ? std::min(most, retry_ms) : most);
}

void Agent::say(const std::string& text) const {
  const std::string& host = options_.joining.host;
  write_all(STDERR_FILENO, fmt::format("kolorun{}: {}\n", host.empty() ? "" : " on " + host, text));
}

// ---- the server ----

rendezvous::Hello Agent::make_hello() const {
  const Joining& joining = options_.joining;
  return {.role = rendezvous::Role::agent,
          .process = number_,
          .host = joining.host.empty() ? transport::host_name() : joining.host,
          .machine = joining.host.empty() ? transport::machine_name() : "",
          .pid = ::getpid(),
          // Ranks are numbered by host, starting with the server's host.
          .wanted_rank = pass_signal_ ? 0 : joining.order,
          .slots = options_.slots,
          .version = std::string(kolo::version),
          .job = options_.server.job,
          .stands_by = own_standby_ && !pass_signal_};
}

void Agent::connect(std::chrono::nanoseconds timeout) {
  const bool is_first = server_.port == 0;
  const auto goes_on = [&] {
    take_signals();
    // Becomes the server if that is possible by now, for example because the previous job's server
    // at this address has ended.
    if (is_first && serve_ && !pass_signal_ && (pass_signal_ = serve_(no_server_))) return false;
    // Ends if the launcher is gone: nothing reads the output of ssh any more.
    if (!options_.joining.host.empty() && has_no_reader(STDOUT_FILENO) &&
        has_no_reader(STDERR_FILENO))
      end_all(1, "");
    return !status_;
  };
  std::optional<FoundServer> found = find_server(
      {.addresses = servers_,
       .hello = make_hello(),
       .secret = options_.server.secret,
       .timeout = timeout,
       .no_server = no_server_,
       .may_be_put_off = options_.joining.host.empty() && (is_first || servers_.size() > 1),
       .goes_on = goes_on,
       .say = [this](const std::string& text) { say(text); }});
  if (!found) return;
  use_server(std::move(*found));
  removing_ = false;
  receive();
}

void Agent::use_server(FoundServer found) {
  server_ = found.at;
  looked_ = Clock::now();
  lease_ = std::clamp<std::chrono::nanoseconds>(found.welcome.lease, 100ms, 1h);
  connection_.emplace(std::move(found.connection));
  server_address_ = transport::peer_address(connection_->descriptor());
  transport::tune(connection_->descriptor(), lease_);
  heard_ = sent_ = Clock::now();
}

/// True if the standby in this process rules. Then nothing of the lost server counts any more, also
/// if this host still hears it.
bool Agent::is_deposed() const {
  return own_standby_ && may_change_server() && own_standby_->rules();
}

void Agent::receive() {
  if (!connected()) return;
  connection_->write();
  connection_->read([&](const rendezvous::Message& message) {
    if (is_deposed()) return false;
    heard_ = Clock::now();
    take(message);
    return !deposition_;
  });
  if (status_) return;
  if (const auto end = std::exchange(deposition_, {})) {
    if (!change_server(end->reason, Loss::deposed)) obey(*end);
  } else if (is_deposed()) {
    lose_server("the other hosts have lost the server", Loss::deposed);
  } else if (connection_->closed()) {
    lose_server(fmt::format("the rendezvous server at {} is gone: {}",
                            transport::to_string(server_), connection_->reason()),
                Loss::closed);
  }
}

void Agent::take(const rendezvous::Message& message) {
  if (const auto* refusal = std::get_if<rendezvous::Refusal>(&message)) {
    end_all(1, fmt::format("the rendezvous server at {} refuses this host: {}",
                           transport::to_string(server_), refusal->reason));
  } else if (const auto* signal = std::get_if<rendezvous::Signal>(&message)) {
    const int number = signal->number;
    told_to_end |= number == SIGTERM || number == SIGINT || number == SIGHUP;
    if (!pass_signal_) end_by_signal(number, Sender::server);
  } else if (status_) {
    return;
  } else if (const auto* more = std::get_if<rendezvous::Start>(&message)) {
    start(*more);
  } else if (const auto* electorate = std::get_if<rendezvous::Electorate>(&message)) {
    electorate_ = *electorate;
  } else if (const auto* kill = std::get_if<rendezvous::Kill>(&message)) {
    for (auto& [pid, child] : children_)
      if (child.id == kill->process && !child.kill_at)
        child.kill_at = Clock::now() + patience_with_lost;
  } else if (const auto* end = std::get_if<rendezvous::End>(&message)) {
    if (end->superseded && may_change_server())
      deposition_ = *end;
    else
      obey(*end);
  } else if (const auto* alive = std::get_if<rendezvous::Keepalive>(&message)) {
    if (alive->count != 0) connection_->send(*alive);
  }
}

void Agent::obey(const rendezvous::End& end) {
  told_ = true;
  restarts_ = end.restarts;
  const bool says = end.status != 0 && !pass_signal_ && options_.joining.host.empty();
  end_all(end.status, says ? end.reason : "",
          end.status == 0 ? Clock::duration{} : Clock::duration(patience_after_failure));
}

/// Ends the processes of this host; an elastic job continues without them. If no launcher manages
/// this host, the agent then tries to rejoin.
void Agent::lose_server(const std::string& reason, Loss loss) {
  if (change_server(reason, loss)) return;
  const bool goes_on = options_.server.elastic || options_.server.max_restarts > 0;
  const bool returns = goes_on && !pass_signal_ && options_.joining.host.empty() && !told_to_end;
  if (!returns && joins_server_of_rank_0()) {
    end_all(1, "");
    last_words_ = fmt::format(
        "the job has failed: {}: the host of rank 0 is lost, or this host is cut off", reason);
  } else if (!returns) {
    end_all(1, reason);
  } else {
    say(reason + "; this host's processes end, and it tries to take part again");
  }
  // Closes the connection first, so that the ends of these processes are not reported as their own
  // failures.
  connection_.reset();
  if (loss != Loss::closed || returns)
    for (auto& [pid, child] : children_) child.kill_at = Clock::now();
}

/// Sends keepalives. Without a message from the server for half of the lease, this host's processes
/// must end: after a whole lease the other hosts continue without them.
void Agent::keep_alive() {
  if (!connected()) return;
  const auto now = Clock::now();
  // `wait` takes at most an eighth of the lease. After a longer gap this process was stopped and
  // could not receive, so the gap does not count as silence of the server.
  if (const auto gap = now - std::exchange(looked_, now); gap > lease_ / 4) heard_ += gap;
  if (now - heard_ > lease_ / 2) {
    lose_server(fmt::format("the rendezvous server at {} sent nothing for {:.1f} s",
                            transport::to_string(server_),
                            std::chrono::duration<double>(now - heard_).count()),
                Loss::silence);
  } else if (now - sent_ >= lease_ / 8) {
    sent_ = now;
    connection_->send(rendezvous::Keepalive{});
  }
}

// ---- signals ----

void Agent::take_signals() {
  while (const std::optional<int> signal = next_signal(signals_)) on_signal(*signal);
}

void Agent::on_signal(int signal) {
  if (signal == SIGCHLD) return;
  if (signal == SIGTSTP) return stop_all();
  // A stop in good order needs a server. A second signal does not wait for it.
  if (signal == SIGTERM && awaits_standby_ && !delayed_stop_) {
    say("signal 15: the job ends, or this host leaves it, once the standby has taken over");
    delayed_stop_ = signal;
    return;
  }
  if (pass_signal_) pass_signal_(signal);
  const bool leaves =
      signal == SIGTERM && !pass_signal_ && options_.server.elastic && connected() && !stopping_;
  if (!leaves || removing_ || status_) {
    end_by_signal(signal, Sender::somebody);
    return;
  }
  removing_ = true;
  electorate_.reset();  // the server counts on it
  say(fmt::format("signal {}: this host leaves the job at the next commit", signal));
  connection_->send(rendezvous::Removal{fmt::format("its kolorun got signal {}", signal)});
}

/// Stops the processes and this process until SIGCONT, as a shell stops a job.
void Agent::stop_all() {
  if (options_.rendezvous) return say(ignored_stop);
  signal_all(SIGSTOP);
  ::raise(SIGSTOP);
}

/// A scheduler may send SIGTERM to every process of a job, so that an agent gets it both from the
/// scheduler and from the server: only a second one of the same sender is meant as a second one.
void Agent::end_by_signal(int signal, Sender sender) {
  if (signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGCONT) {
    signal_all(signal);
    return;
  }
  const bool is_first =
      signal == SIGTERM && !std::exchange(has_sent_stop_[static_cast<std::size_t>(sender)], true);
  if (is_first && stopping_ && !status_) return;
  const bool says = options_.joining.host.empty() && !stopping_;
  const std::string text = says ? fmt::format("signal {}: the job ends", signal) : "";
  if (signal == SIGTERM && !stopping_ && !status_ && connected()) {
    stopping_ = true;
    if (says) say(text);
    for (auto& [pid, child] : children_) child.end_at = Clock::now();
    return kill_due();
  }
  // A second signal ends the processes immediately.
  if (status_ || stopping_) kill_now();
  if (!status_ && stopping_) status_ = signal_base + signal;
  end_all(signal_base + signal, text);
}

/// Ends the processes without waiting any longer: by SIGTERM, or SIGKILL if they have got that.
void Agent::kill_now() {
  for (auto& [pid, child] : children_) (child.end_at ? child.end_at : child.kill_at) = Clock::now();
}

}  // namespace kolorun
