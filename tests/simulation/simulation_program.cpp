// SPDX-License-Identifier: Apache-2.0
// Random programs on simulated ranks.
//
//   --seed S      seed of the first program; the others follow (0)
//   --runs N      max number of programs (1000, unless --seconds is given)
//   --seconds S   max time
//   --jobs J      number of threads (1)
//   --print       print the program of the seed, run nothing
#include <cstdio>
#include <exception>

#include "campaign.hpp"
#include "generator.hpp"

namespace {

namespace campaign = kolo::internal::campaign;
using namespace kolo::internal::simulation;

int run(int argc, char** argv) {
  int jobs = 1;
  bool print = false;
  const campaign::Options options = campaign::read_options(
      argc, argv, 0, 1000, campaign::CommandLine().add("--jobs", jobs).add_flag("--print", print));
  if (print) {
    std::fputs(to_string(make_program(options.seed)).c_str(), stdout);
    return 0;
  }
  const Campaign totals = run_campaign(options, jobs);
  for (const auto& [seed, failure] : totals.failures)
    campaign::report_failure(seed, failure, argv[0]);
  using Number = unsigned long long;
  std::printf(
      "%llu programs, seeds from %llu, in %.1f s: %llu answers, %llu of them errors; %llu batches; "
      "%llu plans repeated %llu batches; %zu broken\n",
      static_cast<Number>(totals.runs), static_cast<Number>(options.seed), totals.seconds,
      static_cast<Number>(totals.answers), static_cast<Number>(totals.errors),
      static_cast<Number>(totals.batches), static_cast<Number>(totals.plans),
      static_cast<Number>(totals.replayed), totals.failures.size());
  return totals.failures.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "simulation_program: %s\n", error.what());
    return 2;
  }
}
