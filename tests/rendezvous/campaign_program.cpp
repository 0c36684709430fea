// SPDX-License-Identifier: Apache-2.0
// Jobs with random faults against the rendezvous server.
//
//   --runs N   number of jobs (1000)
//   --seed S   seed of the first job; the others follow (0)
//   --jobs J   number of threads (1)
#include <chrono>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "campaign.hpp"

int main(int argc, char** argv) {
  using namespace kolo::internal::rendezvous;
  using Number = unsigned long long;
  try {
    std::uint64_t runs = 1000;
    std::uint64_t seed = 0;
    int jobs = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
      const std::string name = argv[i];
      if (name == "--runs")
        runs = std::stoull(argv[i + 1]);
      else if (name == "--seed")
        seed = std::stoull(argv[i + 1]);
      else if (name == "--jobs")
        jobs = std::stoi(argv[i + 1]);
      else
        throw std::invalid_argument("unknown option " + name);
    }
    const auto begin = std::chrono::steady_clock::now();
    const Campaign campaign = run_campaign(seed, runs, jobs);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    for (const auto& [broken, text] : campaign.broken)
      std::printf("seed %llu broke a promise: %s\n", static_cast<Number>(broken), text.c_str());
    std::printf(
        "%llu jobs, seeds from %llu, in %.1f s: %llu generations, %llu results, %llu processes "
        "lost, %llu jobs failed; the largest generation had %llu ranks; %zu broken\n",
        static_cast<Number>(campaign.runs), static_cast<Number>(seed), took.count(),
        static_cast<Number>(campaign.generations), static_cast<Number>(campaign.results),
        static_cast<Number>(campaign.lost), static_cast<Number>(campaign.failed),
        static_cast<Number>(campaign.largest), campaign.broken.size());
    return campaign.broken.empty() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rendezvous_program: %s\n", error.what());
    return 2;
  }
}
