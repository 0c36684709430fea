#include "measure.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

#include "clock.hpp"

namespace perf {
namespace {

constexpr std::chrono::milliseconds silence{100};
constexpr std::chrono::milliseconds longest_offset{50};

/// Another one for each iteration and side, so that what an earlier one left behind is wrong.
std::int64_t phase_of(int iteration, Side side) {
  return 97 * (2 * std::int64_t{iteration} + static_cast<std::int64_t>(side));
}

}  // namespace

Meter::Meter(const Options& options, const World& world)
    : options_(options),
      world_(world),
      random_(options.seed * 1'000'003 + static_cast<std::uint64_t>(world.rank())) {}

Measurement Meter::measure(Workload& workload, const std::function<void(int)>& progress) {
  std::array<Samples, 2> samples;
  for (int iteration = 0; iteration < options_.warmup + options_.iterations; ++iteration) {
    progress(iteration);
    std::array sides{Side::kolo, Side::mpi};
    if (iteration % 2 == 1) std::swap(sides[0], sides[1]);
    for (const Side side : sides)
      if (side == Side::kolo || workload.has_peer())
        iterate(workload, side, iteration, samples[static_cast<std::size_t>(side)]);
  }
  const bool data = workload.elements() > 0;
  Measurement measurement{.kolo = conclude(samples[0], data)};
  if (workload.has_peer()) measurement.mpi = conclude(samples[1], data);
  return measurement;
}

void Meter::iterate(Workload& workload, Side side, int iteration, Samples& samples) {
  const std::int64_t phase = phase_of(iteration, side);
  workload.fill(side, phase);
  meet();
  const double entered = now();
  workload.run(side);
  const double left = now();
  world_.barrier();  // else who is early would check its results on a core that others still need
  workload.fetch();
  samples.wrong += workload.count_wrong(side, phase);
  if (iteration < options_.warmup) return;
  samples.entered.push_back(entered);
  samples.left.push_back(left);
}

/// In mode from_sleep the ranks go apart again, to meet by the operation alone.
void Meter::meet() {
  world_.barrier();
  if (options_.mode != Mode::from_sleep) return;
  std::uniform_real_distribution<double> offset(
      0.0, std::chrono::duration<double>(longest_offset).count());
  std::this_thread::sleep_for(silence + std::chrono::duration<double>(offset(random_)));
}

SideResult Meter::conclude(Samples& samples, bool data) const {
  std::vector<double> durations(samples.left);
  for (std::size_t i = 0; i < durations.size(); ++i) durations[i] -= samples.entered[i];
  std::vector<double> first_left(samples.left);
  world_.take_maximum(durations);
  world_.take_maximum(samples.entered);
  world_.take_maximum(samples.left);
  world_.take_minimum(first_left);

  SideResult result{.wrong = world_.sum(samples.wrong)};
  if (!data && world_.nodes() == 1)
    for (std::size_t i = 0; i < first_left.size(); ++i)
      if (first_left[i] < samples.entered[i]) ++result.wrong;
  if (options_.mode == Mode::from_sleep)
    for (std::size_t i = 0; i < durations.size(); ++i)
      durations[i] = samples.left[i] - samples.entered[i];
  result.latency = summarize(std::move(durations));
  return result;
}

}  // namespace perf
