// SPDX-License-Identifier: Apache-2.0
// Starts and ends sessions in the way that the first argument names, and checks how Kolo handles
// it.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "kolo/kolo.hpp"
#include "lifetime.hpp"

#ifndef KOLO_TEST_MPI
Ways ways_over_mpi() { return {}; }
bool mpi_is_used() { return false; }
#endif

namespace {

void again() {
  for (int round = 0; round < 10; ++round) {
    kolo::init();
    check(kolo::initialized(), "initialized");
    work(kolo::rank(), kolo::size());
    kolo::shutdown();
    check(!kolo::initialized(), "not initialized");
    check_throws<kolo::NotInitialized>([] { (void)kolo::rank(); }, "no session");
  }
}

struct Thrown {};

/// An allocator throws, while another thread waits. All processes stay, so the job does not fail.
void broken() {
  {
    const kolo::Session session;
    work(kolo::rank(), kolo::size());
  }
  const kolo::Session session;
  const int rank = kolo::rank();
  std::exception_ptr error;
  std::thread other([&] {
    if (kolo::size() == 1) return;  // nobody to wait for
    try {
      const std::string name = "only rank " + std::to_string(rank);
      check_throws<kolo::Error>([&] { kolo::barrier({.name = name}); }, name);
    } catch (...) {
      error = std::current_exception();
    }
  });
  std::vector<float> mine(std::size_t{1} << 20, 1.0F);
  std::vector<float> all(mine.size() * static_cast<std::size_t>(kolo::size()));
  const auto gather = [&] {
    for (int i = 0; i < 2; ++i)  // other ranks may have all of the first
      (void)kolo::allgather(kolo::ConstTensorView(mine), [&](auto) -> void* {
        if (rank == 0) throw Thrown();
        return all.data();
      });
  };
  if (rank == 0) {
    check_throws<kolo::BackendError>(gather, "an exception of type (anonymous namespace)::Thrown");
  } else {
    check_throws<kolo::PeerLeft>(gather, "rank 0 cannot go on");
  }
  other.join();
  if (error) std::rethrow_exception(error);
}

/// Prints `text` if `body` does not throw, and ends the process otherwise.
void say_if_fine(const char* text, const std::function<void()>& body) {
  try {
    body();
    std::puts(text);
    std::fflush(stdout);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", text, error.what());
    _exit(1);
  }
}

struct Model {
  std::vector<double> gradient = std::vector<double>(5, 1.0);

  std::vector<kolo::NamedTensor> gradients() { return {{"gradient", gradient}}; }
  void step() { gradient.assign(gradient.size(), kolo::rank()); }
};

/// Trains for the last time when it is destroyed, and before.
struct Trainer {
  Model model{};
  kolo::DistributedOptimizer<Model> optimizer{model};

  Trainer() { optimizer.step(); }
  ~Trainer() {
    say_if_fine("a static object has trained", [this] {
      work(kolo::rank(), kolo::size());
      optimizer.step();
      optimizer.synchronize();
      check(model.gradient.back() == (kolo::size() - 1) / 2.0, "the average");
    });
  }
  Trainer& operator=(Trainer&&) = delete;
};

/// Kolo works after `main`: the session stays open until Kolo's own exit handler.
void after_main() {
  kolo::init();
  static const Trainer trainer;
  std::atexit([] {
    say_if_fine("an exit handler has trained", [] {
      work(kolo::rank(), kolo::size());
      check(kolo::average(kolo::rank()) == (kolo::size() - 1) / 2.0, "the average");
    });
  });
}

/// Under kolorun: what needs MPI is refused on all ranks, and a session starts afterwards.
void without_mpi() {
  const int me = rank_of_kolorun();
  const int size = std::atoi(std::getenv("WORLD_SIZE"));
  const bool is_last = me == size - 1;
  check_throws<kolo::InvalidArgument>([] { kolo::init({.cpu_operations = "mpi"}); }, "without MPI");
  check_throws<kolo::InvalidArgument>(
      [&] { kolo::init({.cpu_operations = is_last ? "mpi" : "auto"}); },
      "rank " + std::to_string(size - 1) + ": cpu_operations is mpi");
  check_throws<kolo::InvalidArgument>([&] { kolo::init({.log_level = is_last ? "loud" : "info"}); },
                                      "rank " + std::to_string(size - 1) + ": log_level=loud");
  check_throws<kolo::InvalidArgument>([] { kolo::init({.network = "mpi"}); }, "without MPI");
  const kolo::Session session;
  work(me, size);
  check(kolo::cpu_operations() == "shm", "data goes through shared memory");
  std::vector<double> tensor(100, 1.0);
  kolo::allreduce(tensor, {.op = kolo::ReduceOp::adasum});
  check(tensor.back() == 1.0, "of equal vectors it is the same");
  work(me, size);
  check(!mpi_is_used(), "MPI is not initialized");
}

/// Under kolorun: rank 1 ends as it says, before a session that the others start or, if `before`
/// has sessions, between two.
void lost_at_start(int sessions, const std::function<void()>& end) {
  for (int round = 0; round < sessions; ++round) {
    const kolo::Session session;
    work(rank_of_kolorun(), kolo::size());
  }
  if (rank_of_kolorun() == 1) end();
  try {
    kolo::init();
  } catch (const kolo::Error& error) {
    std::printf("rank %d was told: %s\n", rank_of_kolorun(), error.what());
    std::fflush(stdout);
    throw;
  }
}

/// Files whose paths are relative belong where the session has started.
void changes_directory() {
  const auto start =
      std::filesystem::temp_directory_path() / ("kolo-lifetime-" + std::to_string(getpid()));
  const auto later = start / "later";
  std::filesystem::create_directories(later);
  std::filesystem::current_path(start);
  {
    const kolo::Session session({.flight_recorder_dir = "records",
                                 .timeline = "timeline-%r.json",
                                 .statistics = "statistics-%r.txt"});
    std::filesystem::current_path(later);
    const std::string number = std::to_string(kolo::rank());
    work(kolo::rank(), kolo::size());
    float value = 1.0F;
    kolo::allreduce(value, {.name = "value"});
    check(kolo::write_flight_record().starts_with((start / "records").string()),
          "the record's path");
    kolo::shutdown();
    check(std::filesystem::file_size(start / ("timeline-" + number + ".json")) > 0, "the timeline");
    check(std::filesystem::file_size(start / ("statistics-" + number + ".txt")) > 0, "statistics");
    check(std::filesystem::is_empty(later), "nothing is written where the program has gone");
  }
  std::filesystem::current_path("/");
  std::filesystem::remove_all(start);
}

/// The main thread ends, and another one goes on with the session.
void main_thread_ends() {
  kolo::init();
  std::thread([main_thread = pthread_self()] {
    pthread_join(main_thread, nullptr);
    say_if_fine("as it should be", [] {
      for (int round = 0; round < 3; ++round) {
        std::vector<float> values(1000, 1.0F);
        static_cast<void>(kolo::allreduce_async(values, {.name = "values"}));  // waits
        check(values.back() == 1.0F, "the average");
        work(kolo::rank(), kolo::size());
      }
      kolo::shutdown();
    });
    std::exit(0);
  }).detach();
  pthread_exit(nullptr);
}

/// The exit status of a child that runs `body`; 0 if that returns true.
int status_of_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    bool fine = false;
    try {
      fine = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the child: %s\n", error.what());
    }
    _exit(fine ? 0 : 1);
  }
  int status = -1;
  check(waitpid(child, &status, 0) == child, "the child ended");
  return status;
}

void fork_before() {
  check(status_of_child([] { return !kolo::initialized(); }) == 0, "the child is fine");
  const kolo::Session session;
  work(kolo::rank(), kolo::size());
}

void fork_after() {
  const kolo::Session session;
  work(kolo::rank(), kolo::size());
  std::vector<float> given(100, 1.0F);
  kolo::Future<void> pending = kolo::allreduce_async(given, {.name = "across the fork"});
  const int status = status_of_child([&] {
    check(!kolo::initialized(), "the child has no session");
    float value = 1.0F;
    check_throws<kolo::InvalidArgument>([&] { kolo::allreduce(value); }, "fork");
    check_throws<kolo::InvalidArgument>([&] { (void)kolo::rank(); }, "fork");
    check_throws<kolo::InvalidArgument>([] { kolo::init(); }, "fork");
    check_throws<kolo::InvalidArgument>([&] { pending.wait(); }, "fork");
    kolo::shutdown();  // does nothing
    return true;
  });
  check(status == 0, "the child is fine");
  pending.wait();
  work(kolo::rank(), kolo::size());
}

}  // namespace

int main(int, char** argv) {
  Ways ways{
      {"again", again},
      {"broken", broken},
      {"after_main", after_main},
      {"fork_before", fork_before},
      {"fork_after", fork_after},
      {"changes_directory", changes_directory},
      {"main_thread_ends", main_thread_ends},
      {"without_mpi", without_mpi},
      {"killed_before_init", [] { lost_at_start(0, [] { std::raise(SIGKILL); }); }},
      {"exits_before_init", [] { lost_at_start(0, [] { std::exit(3); }); }},
      {"killed_between", [] { lost_at_start(2, [] { std::raise(SIGKILL); }); }},
      {"fails_between", [] { lost_at_start(2, [] { std::exit(3); }); }},
  };
  ways.merge(ways_over_mpi());
  try {
    ways.at(argv[1])();
    std::puts("as it should be");
    std::fflush(stdout);  // an abort at exit would lose it
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[1], error.what());
    return 1;
  }
}
