// SPDX-License-Identifier: Apache-2.0
#include "campaign.hpp"

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "generator.hpp"
#include "shrink.hpp"
#include "world.hpp"

namespace kolo::internal::simulation {
namespace {

std::string explain(const Program& program, const Violation& violation) {
  const Program least = shrink(program, violation);
  const auto again = violation_of(least);
  return std::string(violation.what()) +
         "\ncut down to: " + (again ? again->what() : "nothing; it must be run whole") + '\n' +
         to_string(least);
}

}  // namespace

Campaign run_campaign(std::uint64_t first, std::uint64_t runs, int jobs, std::size_t max_broken) {
  Campaign campaign;
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  const auto work = [&] {
    Campaign own;
    for (std::uint64_t i = next++; i < runs && !stop; i = next++) {
      const Program program = make_program(first + i);
      World world(program);
      ++own.runs;
      try {
        world.run();
      } catch (const Violation& violation) {
        const std::string text = explain(program, violation);
        const std::lock_guard lock(mutex);
        campaign.broken.emplace(first + i, text);
        if (campaign.broken.size() >= max_broken) stop = true;
      }
      own.answers += world.judge().answers();
      own.batches += world.judge().batches();
      own.failures += world.judge().failures();
      own.replayed += world.replayed();
      own.plans += world.plans();
    }
    const std::lock_guard lock(mutex);
    campaign.runs += own.runs;
    campaign.answers += own.answers;
    campaign.batches += own.batches;
    campaign.failures += own.failures;
    campaign.replayed += own.replayed;
    campaign.plans += own.plans;
  };
  std::vector<std::thread> threads;
  for (int job = 1; job < jobs; ++job) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return campaign;
}

}  // namespace kolo::internal::simulation
