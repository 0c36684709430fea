// SPDX-License-Identifier: Apache-2.0
// Implements `stop_requested` and `request_stop` of kolo/session.hpp.
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/key.hpp"
#include "base/log.hpp"
#include "kolo/collectives.hpp"
#include "kolo/session.hpp"
#include "session/api/current.hpp"

namespace kolo {

using namespace internal;
namespace {

/// State of the signal handlers: lock-free atomics, and values that are written before a handler is
/// installed.
struct Handlers {
  std::atomic<bool> stops{false};  // this rank is to stop
  std::atomic<int> signal{0};      // the last signal, for the log
  pid_t process = 0;               // the process that has installed the handlers
  pid_t parent = 0;
  int death_signal = 0;  // which the kernel sends if the parent dies; 0: none
  std::array<std::atomic<bool>, NSIG> counts{};  // in this session
  std::array<bool, NSIG> installed{};
  std::array<struct sigaction, NSIG> before{};
};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);
constinit Handlers handlers;

void on_signal(int signal, siginfo_t* info, void* context);

bool is_installed(int signal) {
  struct sigaction now {};
  ::sigaction(signal, nullptr, &now);
  return (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_signal;
}

void on_signal(int signal, siginfo_t* info, void* context) {
  const struct sigaction& before = handlers.before[static_cast<std::size_t>(signal)];
  // A forked child has no training loop. If the launcher has died, it cannot end this process
  // later, so a rank that hangs would remain for ever.
  const bool launcher_died = signal == handlers.death_signal && info->si_pid == handlers.parent &&
                             ::getppid() != handlers.parent;
  // In this session it may not count, and the recorder's handler may have kept this one in place.
  const bool counts = handlers.counts[static_cast<std::size_t>(signal)];
  if (::getpid() != handlers.process || launcher_died || (!counts && is_installed(signal))) {
    ::sigaction(signal, &before, nullptr);
    ::raise(signal);
    return;
  }
  if (counts) {
    handlers.signal.store(signal, std::memory_order_relaxed);
    handlers.stops.store(true, std::memory_order_relaxed);
  }
  if ((before.sa_flags & SA_SIGINFO) != 0)
    before.sa_sigaction(signal, info, context);
  else if (before.sa_handler != SIG_DFL)
    before.sa_handler(signal);
}

/// Once per signal and process: a handler that the program installs later stays.
void install_handler(int signal) {
  const auto at = static_cast<std::size_t>(signal);
  if (std::exchange(handlers.installed[at], true)) return;
  ::sigaction(signal, nullptr, &handlers.before[at]);
  if (handlers.before[at].sa_handler == SIG_IGN) return;
  struct sigaction mine {};
  mine.sa_sigaction = on_signal;
  mine.sa_flags = SA_SIGINFO | SA_RESTART | (handlers.before[at].sa_flags & SA_ONSTACK);
  mine.sa_mask = handlers.before[at].sa_mask;
  ::sigaction(signal, &mine, nullptr);
}

/// After a session in which the signal counted. A handler that was installed later may still call
/// Kolo's, which then only calls the one before.
void remove_handler(int signal) {
  const auto at = static_cast<std::size_t>(signal);
  if (!handlers.installed[at] || !is_installed(signal)) return;
  ::sigaction(signal, &handlers.before[at], nullptr);
  handlers.installed[at] = false;
}

/// The agreement of the ranks.
class Agreement {
 public:
  bool reached() {
    // The engine is released before anything is waited for.
    const auto signals = signals_of(*session::current_engine("kolo::stop_requested"));
    const std::lock_guard lock(mutex_);
    install_handlers(signals);
    begin_epoch();
    if (agreed_) return true;
    take_answer();
    if (!agreed_) ask_in_advance();
    return agreed_;
  }

 private:
  static std::vector<int> signals_of(const session::Engine& engine) {
    std::vector<int> signals = engine.settings().stop_signals;
    std::erase(signals, engine.settings().flight_recorder_signal);
    return signals;
  }

  static void install_handlers(const std::vector<int>& signals) {
    if (handlers.process == 0) {
      handlers.process = ::getpid();
      handlers.parent = ::getppid();
      ::prctl(PR_GET_PDEATHSIG, &handlers.death_signal);
    }
    for (int signal = 1; signal < NSIG; ++signal) {
      const bool counts = std::ranges::find(signals, signal) != signals.end();
      handlers.counts[static_cast<std::size_t>(signal)] = counts;
      if (counts)
        install_handler(signal);
      else
        remove_handler(signal);
    }
  }

  /// In a new session, and after a join, the ranks may have made different numbers of calls, so
  /// their answers would not be of the same call.
  void begin_epoch() {
    const std::int64_t epoch = detail::step_epoch();
    if (epoch == std::exchange(epoch_, epoch)) return;
    // A rank that has learned of the request tells those that had joined by then.
    if (agreed_) request_stop();
    agreed_ = false;
    error_ = nullptr;
    answer_ = {};
    ask();
  }

  void ask() {
    const bool stops = handlers.stops.load(std::memory_order_relaxed);
    const int signal = handlers.signal.exchange(0, std::memory_order_relaxed);
    if (signal != 0) log(LogLevel::info, fmt::format("signal {}: all ranks are to stop", signal));
    flag_ = {std::uint8_t{stops}};
    answer_ = allreduce_async(flag_, {.name = std::string(stop_operation), .op = ReduceOp::max});
  }

  /// An error, such as that another rank has ended its session, belongs to the next call. There may
  /// be none.
  void ask_in_advance() {
    try {
      ask();
    } catch (const Error&) {
      error_ = std::current_exception();
    }
  }

  void take_answer() {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    if (!answer_.valid()) ask();  // the call before has failed
    Future<void> answer = std::move(answer_);
    answer.wait();
    agreed_ = flag_[0] != 0;
  }

  std::mutex mutex_;
  std::int64_t epoch_ = -1;
  bool agreed_ = false;
  std::array<std::uint8_t, 1> flag_{};
  Future<void> answer_{};  // to the next call
  std::exception_ptr error_{};
};

}  // namespace

bool stop_requested() {
  // Never destroyed: an answer may be pending when the process ends.
  static Agreement& agreement = *new Agreement;
  return agreement.reached();
}

void request_stop() noexcept { handlers.stops.store(true, std::memory_order_relaxed); }

}  // namespace kolo
