// SPDX-License-Identifier: Apache-2.0
// Jobs with random faults against the rendezvous server.
//
//   --seed S      seed of the first job; the others follow (0)
//   --runs N      max number of jobs (1000, unless --seconds is given)
//   --seconds S   max time
//   --jobs J      number of threads (1)
#include <cstdio>
#include <exception>

#include "campaign.hpp"

int main(int argc, char** argv) {
  namespace campaign = kolo::internal::campaign;
  using namespace kolo::internal::rendezvous;
  using Number = unsigned long long;
  try {
    int threads = 1;
    const campaign::Options options =
        campaign::read_options(argc, argv, 0, 1000, campaign::CommandLine().add("--jobs", threads));
    const Campaign totals = run_campaign(options, threads);
    for (const auto& [seed, failure] : totals.failures)
      campaign::report_failure(seed, failure, argv[0]);
    std::printf(
        "%llu jobs, seeds from %llu, in %.1f s: %llu generations, %llu results, %llu processes "
        "lost, %llu jobs failed; the largest generation had %llu ranks; %zu broken\n",
        static_cast<Number>(totals.runs), static_cast<Number>(options.seed), totals.seconds,
        static_cast<Number>(totals.generations), static_cast<Number>(totals.results),
        static_cast<Number>(totals.lost), static_cast<Number>(totals.failed),
        static_cast<Number>(totals.largest), totals.failures.size());
    return totals.failures.empty() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rendezvous_program: %s\n", error.what());
    return 2;
  }
}
