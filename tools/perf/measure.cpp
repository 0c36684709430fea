// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"

#include <sys/resource.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <kolo/collectives.hpp>
#include <thread>
#include <utility>

namespace perf {
namespace {

constexpr std::chrono::milliseconds silence{100};
constexpr std::chrono::milliseconds max_offset{50};

/// A phase that differs between iterations and sides, so that data left over from another one
/// counts as wrong.
std::int64_t phase_of(int iteration, Side side) {
  return 97 * (2 * std::int64_t{iteration} + static_cast<std::int64_t>(side));
}

/// Seconds of CLOCK_MONOTONIC, which all processes of a machine share.
double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// User and system time of all threads.
double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
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
  // A rank that finishes early waits, because verifying its results would take processor time from
  // slower ranks on the same core and lengthen their time.
  world_.barrier();
  workload.fetch();
  samples.wrong += workload.count_wrong(side, phase);
  if (iteration < options_.warmup) return;
  samples.entered.push_back(entered);
  samples.left.push_back(left);
}

/// Aligns the ranks. In mode from_sleep they then sleep for different times, so that the operation
/// itself has to wake them.
void Meter::meet() {
  world_.barrier();
  if (options_.mode != Mode::from_sleep) return;
  std::uniform_real_distribution<double> offset(0.0,
                                                std::chrono::duration<double>(max_offset).count());
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

std::vector<double> measure_idle(double seconds, const World& world) {
  std::vector<float> tensor(1U << 18U, 1.0F);
  for (int i = 0; i < 20; ++i) kolo::allreduce(tensor, {.name = "traffic"});
  kolo::barrier();

  const double start = now();
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const double used = (cpu_seconds() - before) / (now() - start);

  std::vector<double> percent(static_cast<std::size_t>(world.size()), 0.0);
  percent[static_cast<std::size_t>(world.rank())] = 100.0 * used;
  world.take_maximum(percent);
  return percent;
}

}  // namespace perf
