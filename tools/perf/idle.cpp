#include "idle.hpp"

#include <sys/resource.h>

#include <chrono>
#include <cstddef>
#include <kolo/collectives.hpp>
#include <thread>

#include "clock.hpp"

namespace perf {
namespace {

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
