// SPDX-License-Identifier: Apache-2.0
#include "campaign.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "plan.hpp"
#include "world.hpp"

namespace kolo::internal::rendezvous {

Campaign run_campaign(std::uint64_t first, std::uint64_t runs, int threads,
                      std::size_t max_broken) {
  Campaign campaign;
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  const auto work = [&] {
    for (std::uint64_t i = next++; i < runs && !stop; i = next++) {
      const Plan plan = make_plan(first + i);
      World world(plan);
      std::string broken;
      try {
        world.run();
      } catch (const Violation& violation) {
        broken = std::string(violation.what()) + " after " +
                 std::to_string(world.now().count() / 1'000'000) + " ms\n" + to_string(plan);
      }
      const std::lock_guard lock(mutex);
      ++campaign.runs;
      campaign.generations += world.judge().generations();
      campaign.results += world.judge().results();
      campaign.lost += world.judge().lost();
      campaign.failed += world.judge().status().value_or(1) != 0 ? 1U : 0U;
      campaign.largest = std::max(campaign.largest, world.judge().largest());
      if (!broken.empty()) campaign.broken.emplace(first + i, broken);
      if (campaign.broken.size() >= max_broken) stop = true;
    }
  };
  std::vector<std::thread> more;
  for (int thread = 1; thread < threads; ++thread) more.emplace_back(work);
  work();
  for (std::thread& thread : more) thread.join();
  return campaign;
}

}  // namespace kolo::internal::rendezvous
