// SPDX-License-Identifier: Apache-2.0
#include "campaign.hpp"

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "plan.hpp"
#include "world.hpp"

namespace kolo::internal::rendezvous {
namespace {

/// The broken promise, or an empty string.
std::string broken_promise(const Plan& plan) {
  try {
    World(plan).run();
    return {};
  } catch (const Violation& violation) {
    return violation.promise();
  }
}

std::string explain(Plan plan, const Violation& violation, Time time) {
  Plan candidate = plan;
  plan.faults = campaign::reduce(plan.faults, [&](const std::vector<Fault>& faults) {
    candidate.faults = faults;
    return broken_promise(candidate) == violation.promise();
  });
  return std::string(violation.what()) + " after " + std::to_string(time.count() / 1'000'000) +
         " ms\nreduced to: " + to_string(plan);
}

}  // namespace

Campaign run_campaign(const campaign::Options& options, int threads, std::size_t max_failures) {
  Campaign totals;
  std::mutex mutex;
  static_cast<campaign::Outcome&>(totals) =
      campaign::run_seeds(options, threads, max_failures, [&](std::uint64_t seed) {
        const Plan plan = make_plan(seed);
        World world(plan);
        std::string failure;
        try {
          world.run();
        } catch (const Violation& violation) {
          failure = explain(plan, violation, world.now());
        }
        const std::lock_guard lock(mutex);
        totals.generations += world.judge().generations();
        totals.results += world.judge().results();
        totals.lost += world.judge().lost();
        totals.failed += world.judge().status().value_or(1) != 0 ? 1U : 0U;
        totals.largest = std::max(totals.largest, world.judge().largest());
        return failure;
      });
  return totals;
}

}  // namespace kolo::internal::rendezvous
