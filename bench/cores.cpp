// SPDX-License-Identifier: Apache-2.0
// Measures the cost of exchanging memory between two cores, as CSV: the time of a message from one
// core to the other, and the rate at which a core rewrites 64 KiB in three cases: the memory was
// not touched in between, the other core has read it, or the other core has overwritten it. The two
// threads are pinned to the first two processors that the process may use.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::vector<std::size_t> processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  std::vector<std::size_t> found;
  for (std::size_t number = 0; number < CPU_SETSIZE; ++number)
    if (CPU_ISSET(number, &allowed)) found.push_back(number);
  return found;
}

void pin(std::size_t processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

/// The number of the thread's turn, in a cache line of its own.
struct alignas(128) Turn {
  std::atomic<int> number{0};

  void wait_for(int wanted) const {
    while (number.load(std::memory_order_acquire) != wanted) continue;
  }
  void set(int next) { number.store(next, std::memory_order_release); }
};

/// Runs `here` and `there` alternately, each on its own processor. Returns the median time of
/// `here` in seconds.
double alternate(const std::vector<std::size_t>& on, const std::function<void()>& here,
                 const std::function<void()>& there) {
  constexpr int rounds = 400;
  Turn turn;
  std::thread other([&] {
    pin(on[1]);
    for (int i = 0; i < rounds; ++i) {
      turn.wait_for(2 * i + 1);
      there();
      turn.set(2 * i + 2);
    }
  });
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const Clock::time_point begin = Clock::now();
    here();
    times.push_back(seconds_since(begin));
    turn.set(2 * i + 1);
    turn.wait_for(2 * i + 2);
  }
  other.join();
  std::ranges::nth_element(times, times.begin() + rounds / 2);
  return times[rounds / 2];
}

double message_seconds(const std::vector<std::size_t>& on) {
  constexpr int rounds = 100'000;
  Turn turn;
  std::thread other([&] {
    pin(on[1]);
    for (int i = 0; i < rounds; ++i) {
      turn.wait_for(2 * i + 1);
      turn.set(2 * i + 2);
    }
  });
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < rounds; ++i) {
    turn.set(2 * i + 1);
    turn.wait_for(2 * i + 2);
  }
  const double seconds = seconds_since(begin);
  other.join();
  return seconds / (2 * rounds);
}

}  // namespace

int main() {
  const std::vector<std::size_t> on = processors();
  if (on.size() < 2) {
    std::fputs("bench-cores needs two processors\n", stderr);
    return 1;
  }
  pin(on[0]);
  constexpr std::size_t bytes = std::size_t{64} << 10;
  std::vector<std::byte> shared(bytes), ours(bytes), theirs(bytes);
  const auto copy = [](const std::vector<std::byte>& from, std::vector<std::byte>& to) {
    std::memcpy(to.data(), from.data(), bytes);
  };
  const auto rate = [&](const std::function<void()>& there) {
    return bytes /
           alternate(
               on, [&] { copy(ours, shared); }, there) /
           1e9;
  };
  std::puts("message_ns,write_gbs,write_after_read_gbs,write_after_write_gbs");
  const double message = message_seconds(on) * 1e9;
  const double alone = rate([] {});
  const double after_read = rate([&] { copy(shared, theirs); });
  const double after_write = rate([&] { copy(theirs, shared); });
  std::printf("%.0f,%.1f,%.1f,%.1f\n", message, alone, after_read, after_write);
}
