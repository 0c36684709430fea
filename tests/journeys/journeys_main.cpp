// SPDX-License-Identifier: Apache-2.0
#include "journeys_main.hpp"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "journey.hpp"
#include "kolo/kolo.hpp"
#include "program.hpp"
#include "support/world.hpp"
#include "surroundings.hpp"

namespace kolo::internal::journeys {
namespace {

// The messages of rank 0. mpirun may lose the last output of a process that aborts.
std::FILE* words = stdout;

struct Options {
  std::uint64_t seed = std::random_device()();
  long long programs = std::numeric_limits<long long>::max();
  double seconds = std::numeric_limits<double>::infinity();
  unsigned patience = 60;
  bool print = false;
  Limits limits{};
};

Options read_options(int argc, char** argv) {
  Options options;
  bool bounded = false;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--print" || name == "--kill") {
      (name == "--print" ? options.print : options.limits.kill) = true;
      continue;
    }
    if (i + 1 == argc) throw std::invalid_argument("what is " + name + "?");
    const std::string value = argv[++i];
    if (name == "--seed") {
      options.seed = std::stoull(value);
    } else if (name == "--programs") {
      options.programs = std::stoll(value);
    } else if (name == "--seconds") {
      options.seconds = std::stod(value);
    } else if (name == "--without") {
      options.limits.without = features_of(value);
    } else if (name == "--only") {
      options.limits.only = features_of(value);
    } else if (name == "--epochs") {
      options.limits.epochs = std::stoi(value);
    } else if (name == "--steps") {
      options.limits.steps = std::stoi(value);
    } else if (name == "--words") {
      words = std::fopen(value.c_str(), "a");
      if (words == nullptr) throw std::invalid_argument("cannot write " + value);
    } else if (name == "--patience") {
      options.patience = static_cast<unsigned>(std::stoul(value));
    } else {
      throw std::invalid_argument("unknown option " + name);
    }
    bounded = bounded || name == "--programs" || name == "--seconds";
  }
  if (!bounded) options.programs = 1;
  return options;
}

/// Rank 0's value on all ranks, outside sessions.
void agree_on(int& value) {
#ifdef KOLO_TEST_MPI
  if (with_mpi()) {
    MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return;
  }
#endif
  const Session session;
  broadcast(value, 0, {.name = "outside sessions"});
}

void run_program(const Program& program, int rank, const Maker& maker) {
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / ("kolo-journey-" + std::to_string(::getpid()));
  std::int64_t steps = 0;
  try {
    Journey journey(program, rank, maker, directory);
    journey.run();
    steps = journey.steps();
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("an exception of an unknown type");
  }
  set_stage("after the last session");
  std::filesystem::remove_all(directory);
  std::filesystem::remove_all(record_directory());
  if (rank != 0) return;
  std::fprintf(words, "JOURNEY seed %llu steps %lld: %s\n",
               static_cast<unsigned long long>(program.seed), static_cast<long long>(steps),
               to_string(program.features).c_str());
  std::fflush(words);
}

/// One rank is killed; the others must learn of it. Does not return.
[[noreturn]] void survive(const Program& program, int rank) {
  set_stage("a rank is killed");
  const int victim = static_cast<int>(program.seed % static_cast<unsigned>(program.ranks));
  set_variables(program);
  init();
  // A helper inherits what is open in its parent, and outlives it.
  if (rank == victim && (program.has(Feature::fork) || program.seed / 4 % 2 == 0)) start_orphan();
  const auto begin = std::chrono::steady_clock::now();
  try {
    for (int step = 0;; ++step) {
      std::vector<float> values(1000, 1.0F);
      if (rank == victim && step == 20) {
        std::filesystem::remove_all(record_directory());
        static_cast<void>(std::raise(SIGKILL));
      }
      allreduce(values, {.name = "gradient"});
    }
  } catch (const PeerLeft& error) {
    if (error.ranks() != std::vector<int>{victim}) fail(error.what());
  } catch (const std::exception& error) {
    fail(error.what());
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  if (spent.count() > 10.0) fail("learned of a killed rank after " + std::to_string(spent.count()));
  std::printf("JOURNEY SURVIVED seed %llu rank %d\n", static_cast<unsigned long long>(program.seed),
              rank);
  std::fflush(stdout);
  std::filesystem::remove_all(record_directory());
  // Or the others would blame this rank.
  std::this_thread::sleep_for(std::chrono::seconds(3));
  std::_Exit(0);
}

void run_all(const Options& options, int rank, int ranks, const Maker& maker, bool torch) {
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t seed = options.seed;
  long long programs = 0;
  for (int go_on = 1; go_on != 0; ++seed) {
    const Program program = make_program(seed, ranks, torch, options.limits);
    if (options.print) {
      if (rank == 0) std::printf("%s", to_string(program).c_str());
    } else {
      watch(seed, rank, options.patience);
      run_program(program, rank, maker);
    }
    ++programs;
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    go_on = programs < options.programs && spent.count() < options.seconds ? 1 : 0;
    agree_on(go_on);
    if (go_on == 0 && program.has(Feature::killed) && !options.print) survive(program, rank);
  }
  if (rank == 0)
    std::fprintf(words, "%lld programs on %d ranks: all as expected\n", programs, ranks);
  std::fflush(words);
  // The first process to exit may end the others, if a session failed while MPI carried a batch.
  if (with_mpi()) wait_for_all();
}

}  // namespace

int run_journeys(int argc, char** argv, const Maker& maker, bool torch) {
  try {
    Options options = read_options(argc, argv);
    // Half of the programs leave the start and the end of MPI to Kolo.
    [[maybe_unused]] const bool own_mpi = options.seed % 2 == 0 && with_mpi();
#ifdef KOLO_TEST_MPI
    int provided = MPI_THREAD_SINGLE;
    if (own_mpi) MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
#endif
    init();
    const int rank = kolo::rank();
    const int ranks = kolo::size();
    shutdown();
#ifdef KOLO_TEST_MPI  // without MPI all ranks are given the same one
    if (with_mpi()) MPI_Bcast(&options.seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
#endif
    if (ranks > 4) throw std::invalid_argument("results are exact up to 4 ranks only");
    run_all(options, rank, ranks, maker, torch);
#ifdef KOLO_TEST_MPI
    if (own_mpi) MPI_Finalize();
#endif
  } catch (const std::exception& error) {
    fail(error.what());
  }
  return 0;
}

}  // namespace kolo::internal::journeys
