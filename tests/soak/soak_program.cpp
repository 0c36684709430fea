// SPDX-License-Identifier: Apache-2.0
// Runs the differential test's random programs for a long time, many per session. Every result is
// compared, and the resources of a rank must not grow.
//
//   --seconds S   approximate duration (60)
//   --session S   seconds per session (a sixth of the duration)
//   --seed N      seed of the first program; default: random
//   --repeat N    number of programs, which repeat, so that a short run shows growth too
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "footprint.hpp"
#include "kolo/kolo.hpp"
#include "program.hpp"
#include "runner.hpp"
#include "support/command_line.hpp"

namespace {

using namespace kolo::internal::differential;
using kolo::internal::soak::Footprint;
using kolo::internal::soak::Watch;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int max_ranks = 4;  // results are exact up to here

struct Options {
  Seconds seconds{};
  Seconds session{};
  std::uint64_t seed = 0;
  std::int64_t repeat = 0;  // 0: each program once
};

Options read_options(int argc, char** argv) {
  Options options;
  options.seed = std::random_device{}();
  double seconds = 60;
  double session = 0;
  kolo::internal::campaign::CommandLine()
      .add("--seconds", seconds)
      .add("--session", session)
      .add("--seed", options.seed)
      .add("--repeat", options.repeat)
      .parse(argc, argv);
  options.seconds = Seconds(seconds);
  options.session = Seconds(session > 0 ? session : seconds / 6);
  return options;
}

class Soak {
 public:
  explicit Soak(const Options& options) : options_(options), watch_(options.seconds) {}

  void run() {
    for (bool goes_on = true; goes_on;) goes_on = run_session();
    report();
  }

 private:
  [[nodiscard]] Seconds elapsed() const { return Clock::now() - begin_; }

  /// Programs until the session has lasted long enough. False when all is over.
  bool run_session() {
    const Program first = make_program(options_.seed, 1);
    const kolo::Session session({.fusion_threshold = first.fusion_threshold,
                                 .stall_warning = std::chrono::seconds(60),
                                 .stall_shutdown = std::chrono::minutes(30),
                                 .cache_capacity = first.cache_capacity});
    if (kolo::size() > max_ranks) throw std::invalid_argument("at most 4 ranks");
    const Seconds end = elapsed() + options_.session;
    ++sessions_;
    enum : int { next_program, next_session, over };
    int then = next_program;
    while (then == next_program) {
      run_program();
      then = elapsed() >= options_.seconds ? over : elapsed() >= end ? next_session : next_program;
      std::array<std::uint64_t, 2> told{options_.seed, static_cast<std::uint64_t>(then)};
      kolo::broadcast(told, 0, {.name = "what comes next"});
      options_.seed = told[0];
      then = static_cast<int>(told[1]);
    }
    return then != over;
  }

  void run_program() {
    std::uint64_t seed = options_.seed;
    kolo::broadcast(seed, 0, {.name = "seed"});
    const Program program = make_program(seed, kolo::size());
    operations_ += kolo::internal::differential::run_program(program);
    ++programs_;
    const bool again = options_.repeat > 0 && programs_ % options_.repeat == 0;
    options_.seed = again ? seed + 1 - static_cast<std::uint64_t>(options_.repeat) : seed + 1;
    if (const Seconds now = elapsed(); now >= next_sample_) {
      watch_.add(now, kolo::internal::soak::measure_footprint());
      next_sample_ = now + options_.seconds / 400;
      if (kolo::rank() == 0) say_progress(now);
    }
  }

  void say_progress(Seconds now) {
    if (now < next_word_) return;
    next_word_ = now + Seconds(60);
    std::printf("%.0f s: %lld programs\n", now.count(), static_cast<long long>(programs_));
    std::fflush(stdout);
  }

  /// Prints the resources of all ranks on rank 0. Throws if the resources of any rank have grown.
  void report() {
    const Watch::Summary mine = watch_.summary();
    const kolo::Session session;
    constexpr std::size_t numbers = sizeof mine / sizeof(std::int64_t);
    std::vector<std::int64_t> own(numbers);
    std::memcpy(own.data(), &mine, sizeof mine);
    const std::vector<std::int64_t> all = kolo::allgather(own).values;
    if (kolo::rank() == 0) {
      std::printf("%lld sessions, %lld programs, %lld operations of rank 0: all as expected\n",
                  static_cast<long long>(sessions_), static_cast<long long>(programs_),
                  static_cast<long long>(operations_));
      for (std::size_t rank = 0; rank * numbers < all.size(); ++rank) {
        Watch::Summary its;
        std::memcpy(static_cast<void*>(&its), &all[rank * numbers], sizeof its);
        print(rank, its);
      }
    }
    const std::string growth = kolo::internal::soak::find_growth(mine);
    kolo::on_every_rank([&] {
      if (!growth.empty()) throw std::runtime_error(growth);
    });
  }

  static void print(std::size_t rank, const Watch::Summary& summary) {
    constexpr double mib = 1 << 20;
    const auto line = [&](const char* what, std::int64_t Footprint::*field, double unit) {
      const auto value = [&](const Footprint& at) { return static_cast<double>(at.*field) / unit; };
      std::printf(
          "rank %zu, %s: first %.1f, most after the warm-up %.1f, most early %.1f and late %.1f, "
          "last %.1f\n",
          rank, what, value(summary.first), value(summary.most), value(summary.early),
          value(summary.late), value(summary.last));
    };
    line("resident MiB", &Footprint::resident, mib);
    line("of it shared", &Footprint::shared, mib);
    line("descriptors", &Footprint::descriptors, 1.0);
    if (rank == 0) line("/dev/shm MiB", &Footprint::dev_shm, mib);
    std::fflush(stdout);
  }

  Options options_;
  Watch watch_;
  Clock::time_point begin_ = Clock::now();
  Seconds next_sample_{};
  Seconds next_word_{};
  std::int64_t sessions_ = 0;
  std::int64_t programs_ = 0;
  std::int64_t operations_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    Options options = read_options(argc, argv);
    {
      const kolo::Session session;
      kolo::broadcast(options.seed, 0);
    }
    Soak(options).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "soak_program failed: %s\n", error.what());
    return 1;
  }
}
