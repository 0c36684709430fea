// SPDX-License-Identifier: Apache-2.0
#include "surroundings.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kolo/collectives.hpp"
#include "kolo/mpi.hpp"

namespace kolo::internal::journeys {
namespace {

// A signal handler prints them.
std::array<char, 200> stage{};
std::array<char, 100> job{};

// Writes at once, so that the lines of ranks do not mix.
void report(const char* what, const char* reason) {
  std::array<char, 1000> line{};
  std::snprintf(line.data(), line.size(), "JOURNEY %s %s: %s%s\n", what, job.data(), stage.data(),
                reason);
  static_cast<void>(!::write(STDERR_FILENO, line.data(), std::strlen(line.data())));
}

void on_alarm(int /*signal*/) {
  report("HANGS", "");
  ::_exit(4);
}

void set(const char* name, bool used, const char* value) {
  if (used) ::setenv(name, value, 1);
  if (!used) ::unsetenv(name);
}

}  // namespace

void set_stage(const std::string& text) {
  std::snprintf(stage.data(), stage.size(), "%s", text.c_str());
}

void fail(const std::string& what) {
  report("FAILS", (": " + what).c_str());
  std::_Exit(3);
}

void watch(std::uint64_t seed, int rank, unsigned seconds) {
  std::snprintf(job.data(), job.size(), "seed %llu rank %d", static_cast<unsigned long long>(seed),
                rank);
  std::signal(SIGALRM, on_alarm);
  ::alarm(seconds);
}

void set_variables(const Program& program) {
  const bool hosts = program.has(Feature::hosts_of_one) || program.has(Feature::hosts_of_two);
  set("KOLO_CPU_OPERATIONS", program.has(Feature::over_mpi), "mpi");
  set("KOLO_TEST_RANKS_PER_HOST", hosts, program.has(Feature::hosts_of_one) ? "1" : "2");
  set("KOLO_CONTROL_INTERFACE", program.has(Feature::polled), "none");
  set("KOLO_STALL_SHUTDOWN", program.has(Feature::stall_shutdown), "15");
  set("KOLO_PLAN_REPLAY", program.has(Feature::no_replay), "off");
  set("KOLO_CACHE_CAPACITY", program.has(Feature::small_cache), program.seed % 2 == 0 ? "0" : "3");
  set("KOLO_FUSION_THRESHOLD", program.has(Feature::no_fusion),
      program.seed % 2 == 0 ? "0" : "500");
}

OpenSession::OpenSession(int ranks) {
  int all = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &all);
  if (ranks == all) {
    session_.emplace();
    return;
  }
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group first = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &group);
  int range[1][3] = {{0, ranks - 1, 1}};
  MPI_Group_range_incl(group, 1, range, &first);
  MPI_Comm_create_group(MPI_COMM_WORLD, first, 0, &part_);
  MPI_Group_free(&first);
  MPI_Group_free(&group);
  init(part_);
}

OpenSession::~OpenSession() {
  session_.reset();
  if (part_ == MPI_COMM_NULL) return;
  shutdown();
  MPI_Comm_free(&part_);
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
