// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/record_signal.hpp"

#include <array>
#include <atomic>
#include <utility>

namespace kolo::internal::diagnostics {
namespace {

// A handler may touch no more than a lock-free atomic. Relaxed: nothing but the number is passed
// on.
std::atomic<unsigned> signals{0};
static_assert(std::atomic<unsigned>::is_always_lock_free);

struct sigaction before;

void on_signal(int signal, siginfo_t* info, void* context) {
  signals.fetch_add(1, std::memory_order_relaxed);
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  }
}

}  // namespace

RecordSignal::RecordSignal(int signal) : signal_(signal) {
  if (signal_ == 0) return;
  seen_ = signals.load(std::memory_order_relaxed);
  // In two calls, so that the handler never runs before it knows the one that was there.
  ::sigaction(signal_, nullptr, &before);
  struct sigaction mine {};
  mine.sa_sigaction = on_signal;
  mine.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&mine.sa_mask);
  ::sigaction(signal_, &mine, nullptr);
}

/// Unless another handler was installed since.
RecordSignal::~RecordSignal() {
  if (signal_ == 0) return;
  struct sigaction now {};
  ::sigaction(signal_, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_signal)
    ::sigaction(signal_, &before, nullptr);
}

bool RecordSignal::came() {
  if (signal_ == 0) return false;
  const unsigned now = signals.load(std::memory_order_relaxed);
  return std::exchange(seen_, now) != now;
}

std::optional<int> parse_signal(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, int>, 5> names{{{"USR1", SIGUSR1},
                                                                          {"USR2", SIGUSR2},
                                                                          {"HUP", SIGHUP},
                                                                          {"QUIT", SIGQUIT},
                                                                          {"WINCH", SIGWINCH}}};
  if (text.starts_with("SIG")) text.remove_prefix(3);
  for (const auto& [name, signal] : names)
    if (name == text) return signal;
  return std::nullopt;
}

}  // namespace kolo::internal::diagnostics
