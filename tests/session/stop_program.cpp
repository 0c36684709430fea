// SPDX-License-Identifier: Apache-2.0
// Ranks that stop in good order. The first argument says how; the others are the signals' names and
// the rank that gets them. Fails unless all ranks stop after the same step.
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <kolo/kolo.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// A step that takes each rank another time; its gradients are averaged.
void train_step(std::int64_t step) {
  std::this_thread::sleep_for(std::chrono::microseconds(100 * ((step * 7 + kolo::rank() * 3) % 5)));
  std::vector<float> gradient(100, 1.0F);
  kolo::allreduce(gradient, {.name = "gradient"});
}

/// Trains until the ranks are to stop. `before` runs before each step. Returns the number of steps.
std::int64_t train(std::int64_t steps, const std::function<void(std::int64_t)>& before) {
  for (std::int64_t step = 0; step < steps; ++step) {
    before(step);
    train_step(step);
    if (kolo::stop_requested()) return step + 1;
  }
  return steps;
}

/// Returns the number if it is the same on all ranks.
std::int64_t same_on_all(std::int64_t number, const std::string& what) {
  for (const std::int64_t other : kolo::allgather(std::vector<std::int64_t>{number}).values)
    require(other == number,
            fmt::format("{}: {} on this rank, {} on another", what, number, other));
  return number;
}

constexpr std::int64_t many = 2000;

/// A signal during a step is known one step later.
void stop_at(std::int64_t at, int signal, int rank) {
  require(!kolo::stop_requested(), "stopped by nobody");  // installs the handlers
  const std::int64_t steps = same_on_all(train(many,
                                               [&](std::int64_t step) {
                                                 if (step == at && kolo::rank() == rank)
                                                   std::raise(signal);
                                               }),
                                         "steps");
  require(steps == at + 2, fmt::format("{} steps after {}", steps, at));
  require(kolo::stop_requested(), "it must stay true");
}

/// Ranks with fewer data join earlier, and do not hear of a request that comes afterwards.
void stop_while_others_have_joined(int rank) {
  const std::int64_t own = 3 + (kolo::size() - 1 - kolo::rank()) * 2;  // the last rank joins first
  const std::int64_t longest = 3 + (kolo::size() - 1) * 2;
  static_cast<void>(train(own, [&](std::int64_t step) {
    if (step == longest - 3 && kolo::rank() == rank) kolo::request_stop();
  }));
  kolo::join();
  require(kolo::stop_requested(), "a rank that had joined did not hear of the request");
}

/// Requests are kept from one session to the next, and before the first one.
void stop_in_the_next_session(int rank) {
  std::optional<kolo::Session> session(std::in_place);
  require(same_on_all(train(5, [](std::int64_t) {}), "steps") == 5, "stopped by nobody");
  const bool is_it = kolo::rank() == rank;
  session.reset();
  if (is_it) kolo::request_stop();
  session.emplace();
  require(same_on_all(train(5, [](std::int64_t) {}), "steps") == 1, "the request was lost");
}

/// In a second session the signals may be others.
void stop_by_others_next(int rank) {
  std::optional<kolo::Session> session(std::in_place, kolo::SessionOptions{.stop_signals = "USR1"});
  require(same_on_all(train(5, [](std::int64_t) {}), "steps") == 5, "stopped by nobody");
  session.reset();
  session.emplace(kolo::SessionOptions{
      .flight_recorder = 0, .flight_recorder_signal = "USR1", .stop_signals = "USR1,TERM"});
  const auto raise_at_1 = [&](int signal) {
    return [=](std::int64_t step) {
      if (step == 1 && kolo::rank() == rank) std::raise(signal);
    };
  };
  require(same_on_all(train(5, raise_at_1(SIGUSR1)), "steps") == 5, "stopped by the recorder's");
  require(same_on_all(train(5, raise_at_1(SIGTERM)), "steps") == 3, "SIGTERM was lost");
}

/// Forked children, ignored signals and other handlers keep what they had.
void keep_others(int rank) {
  static volatile std::sig_atomic_t called = 0;
  std::signal(SIGUSR1, [](int) { called = called + 1; });
  std::signal(SIGHUP, SIG_IGN);
  const kolo::Session session({.flight_recorder = 0,
                               .flight_recorder_signal = "USR2",
                               .stop_signals = "TERM,USR1,USR2,HUP"});
  require(!kolo::stop_requested(), "stopped by nobody");
  // A forked child that has no handler of its own ends.
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    std::raise(SIGTERM);
    while (true) ::pause();
  }
  int how = 0;
  ::waitpid(child, &how, 0);
  require(WIFSIGNALED(how) && WTERMSIG(how) == SIGTERM, "SIGTERM has not ended a forked child");
  std::raise(SIGHUP);   // ignored as before
  std::raise(SIGUSR2);  // writes a flight record
  require(same_on_all(train(5, [](std::int64_t) {}), "steps") == 5, "stopped by another signal");
  if (kolo::rank() == rank) std::raise(SIGUSR1);
  require(same_on_all(train(5, [](std::int64_t) {}), "steps") <= 2, "the signal was lost");
  require(called == (kolo::rank() == rank ? 1 : 0),
          "the program's own handler was not called once");
}

/// A rank whose launcher has died ends: nothing else could end it if it hung.
void end_with_the_launcher() {
  std::array<int, 2> ends{};
  require(::pipe(ends.data()) == 0, "no pipe");
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    if (::fork() == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      const kolo::Session session;
      static_cast<void>(kolo::stop_requested());
      std::raise(SIGTERM);  // which does not end it
      static_cast<void>(::write(ends[1], "r", 1));
      while (true) ::pause();
    }
    ::close(ends[1]);
    char byte = 0;
    ::_exit(::read(ends[0], &byte, 1) == 1 ? 0 : 1);
  }
  ::close(ends[1]);
  int how = 0;
  ::waitpid(launcher, &how, 0);
  require(how == 0, "SIGTERM has ended a rank whose launcher lives");
  // The rank's end closes the pipe.
  pollfd waits{.fd = ends[0], .events = POLLIN, .revents = 0};
  require(::poll(&waits, 1, 20'000) == 1 && (waits.revents & POLLHUP) != 0,
          "the rank has survived its launcher");
}

void run(const std::string& how, int signal, int rank) {
  if (how == "next_session") return stop_in_the_next_session(rank);
  if (how == "others") return keep_others(rank);
  if (how == "next_signals") return stop_by_others_next(rank);
  if (how == "launcher") return end_with_the_launcher();
  const kolo::Session session;
  const int victim = std::min(rank, kolo::size() - 1);
  if (how == "first") stop_at(0, signal, victim);
  if (how == "later") stop_at(20, signal, victim);
  if (how == "joined") stop_while_others_have_joined(0);
  if (how == "quiet") static_cast<void>(train(30, [](std::int64_t) {}));
  if (how == "never")
    require(same_on_all(train(200, [](std::int64_t) {}), "steps") == 200, "stopped by nobody");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  const int signal = argc > 2 && std::string(argv[2]) == "USR1" ? SIGUSR1 : SIGTERM;
  try {
    run(how, signal, argc > 3 ? std::atoi(argv[3]) : 0);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stop_program: %s\n", error.what());
    return 1;
  }
}
