// SPDX-License-Identifier: Apache-2.0
#include "campaign.hpp"

#include <mutex>
#include <string>

#include "generator.hpp"
#include "shrink.hpp"
#include "world.hpp"

namespace kolo::internal::simulation {
namespace {

std::string explain(const Program& program, const Violation& violation) {
  const Program least = shrink(program, violation);
  const auto again = violation_of(least);
  return std::string(violation.what()) +
         "\nreduced to: " + (again ? again->what() : "nothing; run the whole program") + '\n' +
         to_string(least);
}

}  // namespace

Campaign run_campaign(const campaign::Options& options, int jobs, std::size_t max_failures) {
  Campaign totals;
  std::mutex mutex;
  static_cast<campaign::Outcome&>(totals) =
      campaign::run_seeds(options, jobs, max_failures, [&](std::uint64_t seed) {
        const Program program = make_program(seed);
        World world(program);
        std::string failure;
        try {
          world.run();
        } catch (const Violation& violation) {
          failure = explain(program, violation);
        }
        const std::lock_guard lock(mutex);
        totals.answers += world.judge().answers();
        totals.batches += world.judge().batches();
        totals.errors += world.judge().failures();
        totals.replayed += world.replayed();
        totals.plans += world.plans();
        return failure;
      });
  return totals;
}

}  // namespace kolo::internal::simulation
