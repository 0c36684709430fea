// SPDX-License-Identifier: Apache-2.0
// A fault hits one rank during a phase, while all ranks run mixed operations. Each rank logs the
// failure that it sees, with the time; run_faults.py reads and judges the logs.
//
// Usage: fault_program HOW PHASE VICTIM DELAY_US LOG
#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kolo/kolo.hpp"

namespace {

std::string how;
std::string phase;
int victim = 0;
std::chrono::microseconds delay{};
int log_file = -1;

int own_rank = -1;
std::atomic<bool> harmed{false};
std::atomic<const char*> state{"before the session"};

double milliseconds() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Writes a line atomically: several processes write to the log.
void note(const std::string& what) {
  std::array<char, 64> head{};
  std::snprintf(head.data(), head.size(), "%.3f %d ", milliseconds(), own_rank);
  const std::string line = head.data() + what + '\n';
  if (::write(log_file, line.data(), line.size()) < 0) std::abort();
}

/// As Open MPI's or MPICH's launcher says; null without one.
const char* rank_before_mpi() {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank != nullptr ? rank : std::getenv("PMI_RANK");
}

bool is_victim() {
  const char* rank = rank_before_mpi();
  return rank != nullptr && std::atoi(rank) == victim;
}

/// Signals can hit at any moment; other faults are caused by the program's own thread.
bool comes_from_outside() {
  return how == "kill" || how == "stop" || how == "_exit0" || how == "_exit3";
}

void do_harm() {
  note("harm " + how + " in " + phase + ' ' + state.load());
  harmed = true;
  if (how == "kill") ::kill(::getpid(), SIGKILL);
  if (how == "stop") {
    ::kill(::getpid(), SIGSTOP);
    note("resumed");
  }
  if (how == "_exit0") ::_exit(0);
  if (how == "_exit3") ::_exit(3);
  if (how == "exit0") std::exit(0);  // NOLINT: another thread of this process is the session's own
  if (how == "abort") MPI_Abort(MPI_COMM_WORLD, 5);
  if (how == "exception") throw std::runtime_error("thrown on purpose");
}

/// From here on the fault may hit the victim.
class Danger {
 public:
  explicit Danger(const std::string& in) {
    if (in != phase || !is_victim()) return;
    due_ = std::chrono::steady_clock::now() + delay;
    armed_ = true;
    if (comes_from_outside())
      thread_ = std::thread([this] {
        std::this_thread::sleep_until(due_);
        do_harm();
      });
  }
  ~Danger() {
    if (thread_.joinable()) thread_.join();
  }
  Danger(const Danger&) = delete;
  Danger& operator=(const Danger&) = delete;

  /// The last moment at which the fault can hit.
  void strike() {
    if (armed_ && !comes_from_outside()) std::this_thread::sleep_until(due_);
    pass();
  }

  /// Between two operations.
  void pass() {
    if (!armed_ || comes_from_outside() || std::chrono::steady_clock::now() < due_) return;
    armed_ = false;
    do_harm();
  }

 private:
  std::chrono::steady_clock::time_point due_{};
  bool armed_ = false;
  std::thread thread_{};
};

void mixed_operations(const std::string& name) {
  const int n = kolo::size();
  const int me = kolo::rank();
  std::vector<float> tensor(1000, 1.0F);
  kolo::allreduce(tensor, {.name = name + ".allreduce", .op = kolo::ReduceOp::sum});
  if (tensor.back() != static_cast<float>(n)) note("wrong allreduce");
  double value = me;
  kolo::broadcast(value, n - 1, {.name = name + ".broadcast"});
  if (value != n - 1) note("wrong broadcast");
  const std::vector<int> rows(static_cast<std::size_t>(me) + 1, me);
  if (kolo::allgather(rows, {.name = name + ".allgather"}).values.size() !=
      static_cast<std::size_t>(n * (n + 1) / 2))
    note("wrong allgather");
  std::vector<float> a(300, 1.0F);
  std::vector<float> b(5000, 2.0F);
  kolo::Future<void> first = kolo::allreduce_async(a, {.name = name + ".first"});
  kolo::Future<void> second = kolo::allreduce_async(b, {.name = name + ".second"});
  kolo::barrier({.name = name + ".barrier"});
  second.wait();
  first.wait();
}

/// The fault has hit the victim, and the victim has recovered.
bool over() {
  int done = harmed ? 1 : 0;
  kolo::allreduce(done, {.name = "over?", .op = kolo::ReduceOp::max});
  return done != 0;
}

void first_negotiation(Danger& danger) {
  for (int i = 0; !over(); ++i) {
    mixed_operations("new " + std::to_string(i));
    danger.pass();
  }
}

void steady_steps(Danger& danger) {
  std::vector<float> small(256, 1.0F);
  std::vector<float> medium(20000, 1.0F);
  do {
    for (int i = 0; i < 20; ++i) {
      kolo::Future<void> one = kolo::allreduce_async(small, {.name = "small"});
      kolo::Future<void> two = kolo::allreduce_async(medium, {.name = "medium"});
      one.wait();
      two.wait();
      danger.pass();
    }
  } while (!over());
}

void big_reductions(Danger& danger) {
  std::vector<float> big(std::size_t{4} << 20, 1.0F);
  do {
    kolo::allreduce(big, {.name = "big"});
    danger.pass();
  } while (!over());
}

void joins(Danger& danger) {
  std::vector<float> tensor(100, 1.0F);
  do {
    for (int i = 0; i < 3 * (kolo::rank() + 1); ++i) {
      kolo::allreduce(tensor, {.name = "uneven " + std::to_string(i)});
      danger.pass();
    }
    kolo::join();
  } while (!over());
}

void run_phase() {
  Danger danger(phase);
  if (phase == "first") first_negotiation(danger);
  if (phase == "steady") steady_steps(danger);
  if (phase == "big") big_reductions(danger);
  if (phase == "join") joins(danger);
  if (phase == "start") mixed_operations("after the start");
  danger.pass();
}

void live() {
  Danger start("start");
  start.pass();
  const kolo::SessionOptions options{.stall_warning = std::chrono::milliseconds(400),
                                     .stall_shutdown = std::chrono::milliseconds(1200)};
  const kolo::Session session(options);
  state = "in the session";
  own_rank = kolo::rank();
  note("process " + std::to_string(::getpid()));
  start.strike();
  try {
    mixed_operations("warm up");
    if (phase == "shutdown") {
      // All ranks at once, so that the fault hits while the others are about to leave.
      Danger danger("shutdown");
      kolo::barrier({.name = "last"});
      danger.strike();
      state = "leaving";
      kolo::shutdown();
      state = "after the session";
    } else {
      run_phase();
    }
  } catch (const kolo::Error& error) {
    std::string ranks;
    for (const int rank : error.ranks()) ranks += ' ' + std::to_string(rank);
    std::string text = error.what();
    std::ranges::replace(text, '\n', '|');
    note("caught:" + ranks + ": " + text);
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::span arguments(argv, static_cast<std::size_t>(argc));
  if (arguments.size() != 6) return 2;
  how = arguments[1];
  phase = arguments[2];
  victim = std::atoi(arguments[3]);
  delay = std::chrono::microseconds(std::atoi(arguments[4]));
  log_file = ::open(arguments[5], O_WRONLY | O_APPEND | O_CLOEXEC);
  if (log_file < 0) return 2;
  const char* rank = rank_before_mpi();
  own_rank = rank == nullptr ? -1 : std::atoi(rank);
  if (how == "exception" && is_victim()) {  // not caught
    live();
    return 0;
  }
  try {
    live();
  } catch (const std::exception& error) {
    note("ends by an exception");
    return 1;
  }
  note("ends well");
  return 0;
}
