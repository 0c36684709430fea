// SPDX-License-Identifier: Apache-2.0
// Runs random programs of operations and compares the results with those that every rank computes
// alone.
//
//   --seed N      seed of the first program; the others follow; default: random
//   --programs N  maximum number of programs
//   --seconds S   approximate duration
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "kolo/kolo.hpp"
#include "program.hpp"
#include "runner.hpp"

namespace {

using namespace kolo::internal::differential;

struct Options {
  std::uint64_t seed = 0;
  std::int64_t programs = std::numeric_limits<std::int64_t>::max();
  double seconds = std::numeric_limits<double>::infinity();
};

Options read_options(int argc, char** argv) {
  Options options;
  std::random_device random;
  options.seed = random();
  bool bounded = false;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--seed") {
      options.seed = std::stoull(value);
    } else if (name == "--programs") {
      options.programs = std::stoll(value);
      bounded = true;
    } else if (name == "--seconds") {
      options.seconds = std::stod(value);
      bounded = true;
    } else {
      throw std::invalid_argument("unknown option " + name);
    }
  }
  if (!bounded) options.programs = 1;
  return options;
}

/// Runs the program's operations on this rank. Throws on any unexpected result on any rank.
std::int64_t run(std::uint64_t seed, int ranks) {
  const Program program = make_program(seed, ranks);
  const kolo::Session session({.fusion_threshold = program.fusion_threshold,
                               .stall_warning = std::chrono::seconds(20),
                               .stall_shutdown = std::chrono::seconds(60),
                               .cache_capacity = program.cache_capacity});
  Runner runner(program, kolo::rank());
  std::vector<std::string> complaints = runner.run();
  for (const std::string& complaint : complaints)
    std::fprintf(stderr, "seed %llu, rank %d, %s\n", static_cast<unsigned long long>(seed),
                 kolo::rank(), complaint.c_str());
  std::int64_t failed = static_cast<std::int64_t>(complaints.size());
  kolo::allreduce(failed, {.name = "failed", .op = kolo::ReduceOp::sum});
  if (failed != 0) throw std::runtime_error(std::to_string(failed) + " complaints");
  return runner.operations();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  std::int64_t programs = 0;
  try {
    int ranks = 0;
    int rank = 0;
    options = read_options(argc, argv);
    {
      const kolo::Session session;
      ranks = kolo::size();
      rank = kolo::rank();
      kolo::broadcast(options.seed, 0);
    }
    if (ranks > 4) throw std::invalid_argument("results are exact up to 4 ranks only");
    if (rank == 0)
      std::printf("seeds from %llu on %d ranks\n", static_cast<unsigned long long>(options.seed),
                  ranks);
    std::fflush(stdout);
    const auto begin = std::chrono::steady_clock::now();
    std::int64_t operations = 0;
    for (bool go_on = true; go_on; ++options.seed) {
      operations += run(options.seed, ranks);
      ++programs;
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
      go_on = programs < options.programs && spent.count() < options.seconds;
      const kolo::Session session;
      kolo::broadcast(go_on, 0);
    }
    if (rank == 0)
      std::printf("%lld programs, %lld operations of rank 0: all as expected\n",
                  static_cast<long long>(programs), static_cast<long long>(operations));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the program with --seed %llu failed: %s\n",
                 static_cast<unsigned long long>(options.seed), error.what());
    return 1;
  }
}
