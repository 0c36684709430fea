// SPDX-License-Identifier: Apache-2.0
// Runs random programs of operations and compares the results with those that every rank computes
// alone.
//
//   --seed S      seed of the first program; the others follow (random)
//   --runs N      max number of programs (1, unless --seconds is given)
//   --seconds S   max time
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <stdexcept>
#include <string>

#include "kolo/kolo.hpp"
#include "program.hpp"
#include "runner.hpp"
#include "support/campaign.hpp"

namespace {

namespace campaign = kolo::internal::campaign;
using namespace kolo::internal::differential;

/// Runs the program of the seed in a session of its own. Returns this rank's number of operations.
std::int64_t run(std::uint64_t seed, int ranks) {
  const Program program = make_program(seed, ranks);
  const kolo::Session session({.fusion_threshold = program.fusion_threshold,
                               .stall_warning = std::chrono::seconds(20),
                               .stall_shutdown = std::chrono::seconds(60),
                               .cache_capacity = program.cache_capacity});
  return run_program(program);
}

void run_all(campaign::Options options, const std::string& name) {
  int ranks = 0;
  int rank = 0;
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
  campaign::Pace pace(options);
  std::int64_t operations = 0;
  for (bool goes_on = true; goes_on;) {
    try {
      operations += run(pace.seed(), ranks);
    } catch (const std::exception& error) {
      campaign::report_failure(pace.seed(), error.what(),
                               "mpirun -np " + std::to_string(ranks) + ' ' + name);
      throw;
    }
    goes_on = pace.advance();
    const kolo::Session session;
    kolo::broadcast(goes_on, 0);
  }
  if (rank == 0)
    std::printf("%llu programs, %lld operations of rank 0: all as expected\n",
                static_cast<unsigned long long>(pace.runs()), static_cast<long long>(operations));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run_all(campaign::read_options(argc, argv, std::random_device()(), 1), argv[0]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "differential_program failed: %s\n", error.what());
    return 1;
  }
}
