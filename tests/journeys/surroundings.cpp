// SPDX-License-Identifier: Apache-2.0
#include "surroundings.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#ifdef KOLO_TEST_MPI
#include "kolo/mpi.hpp"
#endif
#include "support/world.hpp"

namespace kolo::internal::journeys {
namespace {

// A signal handler prints them.
std::array<char, 200> stage{};
std::array<char, 100> job{};
unsigned patience = 0;

// Writes at once, so that the lines of ranks do not mix.
void report(const char* what, const char* reason) {
  std::array<char, 1000> line{};
  std::snprintf(line.data(), line.size(), "JOURNEY %s %s: %s%s\n", what, job.data(), stage.data(),
                reason);
  static_cast<void>(!::write(STDERR_FILENO, line.data(), std::strlen(line.data())));
}

/// Long names are long by one letter.
std::string without_repetition(const std::string& text) {
  std::string shorter;
  std::size_t same = 0;
  for (const char letter : text) {
    same = !shorter.empty() && shorter.back() == letter ? same + 1 : 0;
    if (same < 8) shorter += letter;
  }
  return shorter;
}

void on_alarm(int /*signal*/) {
  report("HANGS", "");
  ::_exit(4);
}

volatile std::sig_atomic_t user_signals = 0;
volatile std::sig_atomic_t handlers_running = 0;
struct sigaction handler_before {};

// Runs without end if a handler below it calls this one.
void on_user_signal(int signal, siginfo_t* info, void* context) {
  user_signals = user_signals + 1;
  handlers_running = handlers_running + 1;
  if (handlers_running > 100) {
    report("FAILS", ": signal handlers call each other");
    ::_exit(3);
  }
  if ((handler_before.sa_flags & SA_SIGINFO) != 0)
    handler_before.sa_sigaction(signal, info, context);
  handlers_running = handlers_running - 1;
}

/// One thread or two open a session at the same time: one of them does.
void init_by(int threads, const std::function<void()>& open) {
  std::atomic<int> opened{0};
  std::atomic<int> refused{0};
  const auto attempt = [&] {
    try {
      open();
      ++opened;
    } catch (const InvalidArgument&) {
      ++refused;
    }
  };
  std::thread other;
  if (threads == 2) other = std::thread(attempt);
  attempt();
  if (threads == 2) other.join();
  if (opened != 1 || refused != threads - 1)
    throw Unexpected(std::to_string(opened) + " threads opened the session");
}

// So few that the names of removed process sets would use up the cache, if their slots stayed.
constexpr const char* churned_capacity = "300";

void set(const char* name, bool used, const char* value) {
  if (used) ::setenv(name, value, 1);
  if (!used) ::unsetenv(name);
}

}  // namespace

void set_stage(const std::string& text) {
  std::snprintf(stage.data(), stage.size(), "%s", text.c_str());
}

void fail(const std::string& what) {
  report("FAILS", (": " + without_repetition(what)).c_str());
  std::_Exit(3);
}

void watch(std::uint64_t seed, int rank, unsigned seconds) {
  std::snprintf(job.data(), job.size(), "seed %llu rank %d", static_cast<unsigned long long>(seed),
                rank);
  std::signal(SIGALRM, on_alarm);
  patience = seconds;
  watch_again(1);
}

void watch_again(unsigned times) { ::alarm(times * patience); }

void set_variables(const Program& program) {
  const bool hosts = program.has(Feature::hosts_of_one) || program.has(Feature::hosts_of_two);
  set("KOLO_CPU_OPERATIONS", program.has(Feature::over_mpi), "mpi");
  set("KOLO_TEST_RANKS_PER_HOST", hosts, program.has(Feature::hosts_of_one) ? "1" : "2");
  set("KOLO_CONTROL_INTERFACE", program.has(Feature::polled), "none");
  set("KOLO_STALL_SHUTDOWN", program.has(Feature::stall_shutdown), "15");
  set("KOLO_PLAN_REPLAY", program.has(Feature::no_replay), "off");
  const bool small = program.has(Feature::small_cache);
  const std::string capacity = small ? (program.seed % 2 == 0 ? "0" : "3") : churned_capacity;
  set("KOLO_CACHE_CAPACITY", small || program.has(Feature::set_churn), capacity.c_str());
  const bool records = program.has(Feature::record_signal);
  set("KOLO_FLIGHT_RECORDER_SIGNAL", records, "USR1");
  set("KOLO_FLIGHT_RECORDER_DIR", true, records ? record_directory().c_str() : "off");
  if (records) std::filesystem::create_directories(record_directory());
  set("KOLO_FUSION_THRESHOLD", program.has(Feature::no_fusion),
      program.seed % 2 == 0 ? "0" : "500");
}

std::filesystem::path record_directory() {
  return std::filesystem::temp_directory_path() /
         ("kolo-journey-" + std::to_string(::getpid()) + "-records");
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

OpenSession::OpenSession(const Program& program, int ranks) {
  const bool two = program.has(Feature::two_inits);
  const int all = world_size();
  by_init_ = two || ranks != all;
  if (!by_init_) {
    session_.emplace();
    return;
  }
  if (ranks == all) {
    init_by(two ? 2 : 1, [] { init(); });
    return;
  }
#ifdef KOLO_TEST_MPI
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group first = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &group);
  int range[1][3] = {{0, ranks - 1, 1}};
  MPI_Group_range_incl(group, 1, range, &first);
  MPI_Comm_create_group(MPI_COMM_WORLD, first, 0, &part_);
  MPI_Group_free(&first);
  MPI_Group_free(&group);
  init_by(two ? 2 : 1, [&] { init(part_); });
#else
  fail("some of the ranks cannot have a session without MPI");
#endif
}

OpenSession::~OpenSession() {
  session_.reset();
  if (by_init_) shutdown();
#ifdef KOLO_TEST_MPI
  if (part_ != MPI_COMM_NULL) MPI_Comm_free(&part_);
#endif
}

SignalHandler::SignalHandler() {
  struct sigaction mine {};
  mine.sa_sigaction = on_user_signal;
  mine.sa_flags = SA_SIGINFO;
  ::sigaction(SIGUSR1, &mine, &handler_before);
}

SignalHandler::~SignalHandler() { ::sigaction(SIGUSR1, &handler_before, nullptr); }

void SignalHandler::raise() {
  std::filesystem::remove_all(record_directory());
  std::filesystem::create_directories(record_directory());
  const int before = user_signals;
  static_cast<void>(std::raise(SIGUSR1));
  if (user_signals != before + 1)
    throw Unexpected("the program's handler was called " + std::to_string(user_signals - before) +
                     " times for one signal");
}

void SignalHandler::require_record() {
  if (std::filesystem::is_empty(record_directory()))
    throw Unexpected("a signal wrote no flight record");
}

void Helpers::start() {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw Unexpected("fork failed");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (::getppid() == parent) ::pause();
    ::_exit(0);
  }
  children_.push_back(child);
}

Helpers::~Helpers() {
  for (const pid_t child : children_) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
}

void start_orphan() {
  if (::fork() != 0) return;
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (const int output : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere, output);
  std::signal(SIGALRM, SIG_DFL);
  ::alarm(20);
  while (true) ::pause();
}

SideThreads::SideThreads(const Program& program, const std::string& epoch, int rank, int ranks) {
  if (!program.has(Feature::threads)) return;
  const int count = 1 + static_cast<int>(program.seed % 2);
  complaints_.resize(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i)
    threads_.emplace_back([this, i, epoch, rank, ranks] { run(i, epoch, rank, ranks); });
}

SideThreads::~SideThreads() {
  for (std::thread& thread : threads_) thread.join();
}

void SideThreads::run(int number, const std::string& epoch, int rank, int ranks) try {
  for (int i = 0; i < 8; ++i) {
    std::vector<float> values(static_cast<std::size_t>(1 + i * 7), static_cast<float>(rank + i));
    allreduce(values, {.name = "side " + std::to_string(number) + ' ' + std::to_string(i) + epoch,
                       .op = ReduceOp::max});
    if (values.back() != static_cast<float>(ranks - 1 + i))
      complaints_[static_cast<std::size_t>(number)] = "another thread got a wrong maximum";
  }
} catch (const std::exception& error) {
  complaints_[static_cast<std::size_t>(number)] =
      std::string("another thread's allreduce failed: ") + error.what();
}

void SideThreads::finish() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  for (const std::string& complaint : complaints_)
    if (!complaint.empty()) throw Unexpected(complaint);
}

}  // namespace kolo::internal::journeys
