// SPDX-License-Identifier: Apache-2.0
#include "support/campaign.hpp"

#include <cstdio>
#include <mutex>
#include <optional>
#include <thread>

namespace kolo::internal::campaign {

Options read_options(int argc, char** argv, std::uint64_t default_seed, std::uint64_t default_runs,
                     CommandLine command_line) {
  constexpr Options unlimited;
  Options options{.seed = default_seed};
  command_line.add("--seed", options.seed)
      .add("--runs", options.runs)
      .add("--seconds", options.seconds)
      .parse(argc, argv);
  if (options.runs == unlimited.runs && options.seconds == unlimited.seconds)
    options.runs = default_runs;
  return options;
}

double Pace::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

bool Pace::advance() {
  ++runs_;
  return runs_ < options_.runs && seconds() < options_.seconds;
}

Outcome run_seeds(const Options& options, int jobs, std::size_t max_failures,
                  const std::function<std::string(std::uint64_t seed)>& run) {
  Outcome outcome;
  Pace pace(options);
  std::mutex mutex;  // guards all of the above
  bool goes_on = true;
  const auto next = [&]() -> std::optional<std::uint64_t> {
    const std::lock_guard lock(mutex);
    if (!goes_on) return std::nullopt;
    const std::uint64_t seed = pace.seed();
    goes_on = pace.advance();
    return seed;
  };
  const auto work = [&] {
    while (const std::optional<std::uint64_t> seed = next()) {
      std::string failure = run(*seed);
      const std::lock_guard lock(mutex);
      ++outcome.runs;
      if (failure.empty()) continue;
      outcome.failures.emplace(*seed, std::move(failure));
      if (outcome.failures.size() >= max_failures) goes_on = false;
    }
  };
  std::vector<std::thread> threads;
  for (int job = 1; job < jobs; ++job) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  outcome.seconds = pace.seconds();
  return outcome;
}

void report_failure(std::uint64_t seed, const std::string& failure, const std::string& command) {
  const auto number = static_cast<unsigned long long>(seed);
  std::fprintf(stderr, "seed %llu failed: %s\nrepeat: %s --seed %llu --runs 1\n", number,
               failure.c_str(), command.c_str(), number);
}

}  // namespace kolo::internal::campaign
