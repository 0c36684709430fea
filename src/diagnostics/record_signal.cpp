// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/record_signal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/log.hpp"

namespace kolo::internal::diagnostics {
namespace {

// A program may install its own handler on top of Kolo's and call Kolo's from it. Then Kolo's
// handler stays when its session ends, and the next session installs one on top of both. If Kolo's
// two handlers were one function, this function and the program's handler would call each other
// forever. So each session's handler is a function of its own.
constexpr std::size_t max_handlers = 16;

struct Chain {
  // A handler may access only lock-free atomics. Relaxed: they publish nothing but themselves.
  std::atomic<unsigned> signals{0};
  std::atomic<std::size_t> counting{0};  // the handler that counts; handlers below are called too
  std::array<struct sigaction, max_handlers> before{};  // the action that each handler replaced
  // The index of the first unused handler. No lock is needed: one session exists at a time.
  std::size_t first_unused = 0;
};
static_assert(std::atomic<unsigned>::is_always_lock_free);
constinit Chain chain;

template <std::size_t number>
void on_signal(int signal, siginfo_t* info, void* context) {
  if (chain.counting.load(std::memory_order_relaxed) == number)
    chain.signals.fetch_add(1, std::memory_order_relaxed);
  const struct sigaction& next = chain.before[number];
  if ((next.sa_flags & SA_SIGINFO) != 0) {
    next.sa_sigaction(signal, info, context);
  } else if (next.sa_handler != SIG_DFL && next.sa_handler != SIG_IGN) {
    next.sa_handler(signal);
  }
}

using Handler = void (*)(int, siginfo_t*, void*);

template <std::size_t... numbers>
constexpr std::array<Handler, max_handlers> handlers_of(
    std::index_sequence<numbers...> /*numbers*/) {
  return {on_signal<numbers>...};
}
constexpr std::array<Handler, max_handlers> handlers =
    handlers_of(std::make_index_sequence<max_handlers>());

/// The number of an installed handler, if it is one of Kolo's.
std::optional<std::size_t> number_of(const struct sigaction& installed) {
  if ((installed.sa_flags & SA_SIGINFO) == 0) return std::nullopt;
  const auto found = std::ranges::find(handlers, installed.sa_sigaction);
  if (found == handlers.end()) return std::nullopt;
  return static_cast<std::size_t>(found - handlers.begin());
}

}  // namespace

RecordSignal::RecordSignal(int signal) : signal_(signal) {
  if (signal_ == 0) return;
  seen_ = chain.signals.load(std::memory_order_relaxed);
  struct sigaction now {};
  ::sigaction(signal_, nullptr, &now);
  if (const std::optional<std::size_t> own = number_of(now)) {
    // A handler that was left behind: the program has removed its own on top of it.
    chain.counting.store(*own, std::memory_order_relaxed);
    return;
  }
  if (chain.first_unused == max_handlers) {
    log(LogLevel::warning,
        fmt::format("signal {} will write no flight record: this program has installed its own "
                    "handler in {} sessions, and each time after Kolo's",
                    signal_, max_handlers));
    signal_ = 0;
    return;
  }
  // In two calls, so that the handler never runs before it knows the handler that it replaces.
  chain.before[chain.first_unused] = now;
  chain.counting.store(chain.first_unused, std::memory_order_relaxed);
  struct sigaction mine {};
  mine.sa_sigaction = handlers[chain.first_unused];
  mine.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&mine.sa_mask);
  ::sigaction(signal_, &mine, nullptr);
  ++chain.first_unused;
}

// Restores the previous handler unless another was installed since.
RecordSignal::~RecordSignal() {
  if (signal_ == 0) return;
  struct sigaction now {};
  ::sigaction(signal_, nullptr, &now);
  const std::optional<std::size_t> own = number_of(now);
  if (!own) return;
  ::sigaction(signal_, &chain.before[*own], nullptr);
  if (*own + 1 == chain.first_unused) chain.first_unused = *own;
}

bool RecordSignal::came() {
  if (signal_ == 0) return false;
  const unsigned now = chain.signals.load(std::memory_order_relaxed);
  return std::exchange(seen_, now) != now;
}

}  // namespace kolo::internal::diagnostics
