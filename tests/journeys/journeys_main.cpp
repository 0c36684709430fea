// SPDX-License-Identifier: Apache-2.0
#include "journeys_main.hpp"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "journey.hpp"
#include "kolo/kolo.hpp"
#include "program.hpp"
#include "support/campaign.hpp"
#include "support/world.hpp"
#include "surroundings.hpp"

namespace kolo::internal::journeys {
namespace {

// The report of rank 0. mpirun may lose the end of its standard output when a process aborts.
std::FILE* words = stdout;

struct Options {
  campaign::Options campaign{};
  unsigned patience = 60;
  bool print = false;
  Limits limits{};
};

Options read_options(int argc, char** argv) {
  Options options;
  const auto open_words = [](const std::string& path) {
    words = std::fopen(path.c_str(), "a");
    if (words == nullptr) throw std::invalid_argument("cannot write " + path);
  };
  campaign::CommandLine command_line;
  command_line.add_flag("--print", options.print)
      .add_flag("--kill", options.limits.kill)
      .add("--without",
           [&](const std::string& names) { options.limits.without = features_of(names); })
      .add("--with", [&](const std::string& names) { options.limits.with = features_of(names); })
      .add("--only", [&](const std::string& names) { options.limits.only = features_of(names); })
      .add("--epochs", options.limits.epochs)
      .add("--steps", options.limits.steps)
      .add("--words", open_words)
      .add("--patience", options.patience);
  options.campaign =
      campaign::read_options(argc, argv, std::random_device()(), 1, std::move(command_line));
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
  campaign::Pace pace(options.campaign);
  for (int goes_on = 1; goes_on != 0;) {
    const Program program = make_program(pace.seed(), ranks, torch, options.limits);
    if (options.print) {
      if (rank == 0) std::printf("%s", to_string(program).c_str());
    } else {
      watch(pace.seed(), rank, options.patience);
      run_program(program, rank, maker);
    }
    goes_on = pace.advance() ? 1 : 0;
    agree_on(goes_on);
    if (goes_on == 0 && program.has(Feature::killed) && !options.print) survive(program, rank);
  }
  if (rank == 0)
    std::fprintf(words, "%llu programs on %d ranks: all as expected\n",
                 static_cast<unsigned long long>(pace.runs()), ranks);
  std::fflush(words);
  // The first process to exit may end the others, if a session failed while MPI carried a batch.
  if (with_mpi()) wait_for_all();
}

}  // namespace

int run_journeys(int argc, char** argv, const Maker& maker, bool torch) {
  try {
    Options options = read_options(argc, argv);
    // Half of the programs leave the start and the end of MPI to Kolo.
    [[maybe_unused]] const bool own_mpi = options.campaign.seed % 2 == 0 && with_mpi();
#ifdef KOLO_TEST_MPI
    int provided = MPI_THREAD_SINGLE;
    if (own_mpi) MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
#endif
    init();
    const int rank = kolo::rank();
    const int ranks = kolo::size();
    shutdown();
#ifdef KOLO_TEST_MPI  // without MPI all ranks are given the same one
    if (with_mpi()) MPI_Bcast(&options.campaign.seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
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
