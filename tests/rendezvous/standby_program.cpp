// SPDX-License-Identifier: Apache-2.0
// Trains step by step until a file exists, and prints when each step is done.
//
//   standby_program FILE      with STANDBY_PROGRAM_STOPS also until it is told to stop
//   standby_program --now     prints the time by the same clock
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "kolo/kolo.hpp"

namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void train(const std::string& end, std::uint64_t& step, kolo::elastic::State& state) {
  const bool stops = std::getenv("STANDBY_PROGRAM_STOPS") != nullptr;
  while (true) {
    std::vector<double> ends{kolo::rank() == 0 && std::filesystem::exists(end) ? 1.0 : 0.0};
    kolo::allreduce(ends, {.name = "ends", .op = kolo::ReduceOp::sum});
    ++step;
    std::printf("step %d rank %d of %d at %.3f\n", static_cast<int>(step), kolo::rank(),
                kolo::size(), seconds_now());
    std::fflush(stdout);
    state.commit();
    if (ends.front() > 0.0 || (stops && kolo::stop_requested())) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the length of a step
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string argument = argc > 1 ? argv[1] : "--now";
  if (argument == "--now") {
    std::printf("%.3f\n", seconds_now());
    return 0;
  }
  try {
    const kolo::Session session;
    std::uint64_t step = 0;
    kolo::elastic::State state;
    state.add("step", step);
    kolo::elastic::run(state, [&] { train(argument, step, state); });
    std::printf("done: rank %d of %d\n", kolo::rank(), kolo::size());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ended: %s\n", error.what());
    return 1;
  }
}
