// SPDX-License-Identifier: Apache-2.0
// Operations that do not complete, in the way that the first argument names; the second argument is
// the rank to blame. All other ranks get Stalled and print it; the test reads the warnings before
// it. With `pause` nobody is to blame: the whole job is stopped meanwhile, for longer than all
// limits, and must go on.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kolo/kolo.hpp"

namespace {

std::vector<int> processes;  // process ids of all ranks

/// By a signal to this thread: by one to the process it could go on for a moment.
void stop() { ::raise(SIGSTOP); }

/// A rank that stops does so in the middle of the batch, when the memory for the result is asked
/// for.
void gather(bool stops) {
  const std::vector<float> own(std::size_t{1} << 18);
  std::vector<float> all;
  const auto allocate = [&](std::span<const std::int64_t> rows) -> void* {
    if (stops) stop();
    std::int64_t elements = 0;
    for (const std::int64_t count : rows) elements += count;
    all.resize(static_cast<std::size_t>(elements));
    return all.data();
  };
  static_cast<void>(kolo::allgather(own, allocate, {.name = "large"}));
}

/// Until the others have given up, without waiting in Kolo.
void stay_outside() {
  const kolo::Future<void> own = kolo::barrier_async({.name = "conv1.bias"});
  while (!own.ready()) std::this_thread::yield();
}

constexpr std::chrono::seconds pause_length{5};

/// Stops the processes of all ranks, as a batch system does, and lets them go on.
void stop_all() {
  if (::fork() != 0) return;
  for (const int signal : {SIGSTOP, SIGCONT}) {
    for (const int process : processes) ::kill(process, signal);
    if (signal == SIGSTOP) std::this_thread::sleep_for(pause_length);  // the fault itself
  }
  ::_exit(0);
}

/// Stops all ranks, and computes until this process has been stopped: it has seen no time for so
/// long.
void compute_through_a_pause() {
  using Clock = std::chrono::steady_clock;
  Clock::time_point last = Clock::now();  // it may be stopped before the call returns
  stop_all();
  for (Clock::time_point now = Clock::now(); now - last < pause_length / 2; now = Clock::now())
    last = now;
}

void blamed(const std::string& how) {
  std::vector<float> tensor(100);
  if (how == "name") {
    kolo::barrier({.name = "others have submitted"});
    kolo::allreduce(tensor, {.name = "conv1.weigth"});
  }
  if (how == "order") {
    kolo::allreduce(tensor, {.name = "second"});
    kolo::allreduce(tensor, {.name = "first"});
  }
  if (how == "outside") stay_outside();
  if (how == "pause") {
    kolo::barrier({.name = "others have submitted"});
    compute_through_a_pause();
    kolo::allreduce(tensor, {.name = "conv1.weight"});
  }
  if (how == "batch") gather(/*stops=*/true);
  if (how == "plan" || how == "join" || how == "never" || how == "end") stop();
}

void others(const std::string& how) {
  std::vector<float> tensor(100);
  if (how == "batch") gather(/*stops=*/false);
  if (how == "order") kolo::allreduce(tensor, {.name = "first"});
  if (how == "plan") kolo::allreduce(tensor, {.name = "steady"});
  if (how == "join") kolo::join();
  if (how == "end") return;
  auto own = kolo::allreduce_async(tensor, {.name = "conv1.weight"});
  if (how == "name" || how == "pause") kolo::barrier({.name = "others have submitted"});
  own.wait();
}

void run(const std::string& how, int culprit) {
  // Ranks that wait for each other are reported at once.
  const std::chrono::milliseconds warning =
      how == "order" ? std::chrono::hours(1) : std::chrono::milliseconds(700);
  std::optional<kolo::Session> session(
      kolo::SessionOptions{.stall_warning = warning,
                           .stall_shutdown = std::chrono::seconds(3),
                           .peer_timeout = std::chrono::seconds(how == "pause" ? 1 : 30)});
  const std::vector<int> own{static_cast<int>(::getpid())};
  processes = kolo::allgather(own).values;
  std::vector<float> tensor(100);
  const int steps = how == "plan" || how == "pause" ? 200 : 1;
  for (int step = 0; step < steps; ++step) kolo::allreduce(tensor, {.name = "steady"});
  try {
    if (kolo::rank() == culprit) {
      blamed(how);
    } else {
      others(how);
    }
    if (how == "pause") {
      for (int step = 0; step < steps; ++step) kolo::allreduce(tensor, {.name = "steady"});
      std::printf("rank %d goes on\n", kolo::rank());
      return;
    }
  } catch (const kolo::Stalled& error) {
    std::string ranks;
    for (const int rank : error.ranks()) ranks += ' ' + std::to_string(rank);
    std::printf("rank %d stalled because of%s: %s\n", kolo::rank(), ranks.c_str(), error.what());
    std::fflush(stdout);
  } catch (const kolo::PeerLeft& error) {  // the others have given up before it goes on
    std::printf("rank %d is alone: %s\n", kolo::rank(), error.what());
  }
  const bool goes_on_later = kolo::rank() != culprit;
  if (how == "end") session.reset();
  if (goes_on_later) ::kill(processes[static_cast<std::size_t>(culprit)], SIGCONT);
}

}  // namespace

int main(int, char** argv) {
  try {
    run(argv[1], std::atoi(argv[2]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ends by: %s\n", error.what());
    return 1;
  }
}
