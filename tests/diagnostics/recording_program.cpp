// SPDX-License-Identifier: Apache-2.0
// Rank 1 deviates from the others after some steps:
//
//   skipped    it omits one gradient from then on, and a stall ends the session
//   left       it throws
//   killed     it is killed
//   signalled  it computes forever, and a signal asks all ranks for records
#include <csignal>
#include <cstdio>
#include <exception>
#include <kolo/kolo.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int steps = 10;

void go_own_way(const std::string& how) {
  if (how == "left") throw std::runtime_error("thrown on purpose");
  if (how == "killed") std::raise(SIGKILL);
  if (how == "signalled") {
    std::puts("rank 1 is away");
    std::fflush(stdout);
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

void train(const std::string& how) {
  const kolo::Session session;
  std::vector<float> weight(1000);
  std::vector<float> bias(10);
  for (int step = 0;; ++step) {
    const bool other_way = step >= steps && kolo::rank() == 1;
    if (other_way) go_own_way(how);
    std::vector<kolo::Future<void>> futures;
    futures.push_back(kolo::allreduce_async(weight, {.name = "layer.weight"}));
    if (!other_way) futures.push_back(kolo::allreduce_async(bias, {.name = "layer.bias"}));
    for (kolo::Future<void>& future : futures) future.wait();
  }
}

}  // namespace

int main(int, char** argv) {
  try {
    train(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "caught: %s\n", error.what());
    return 1;
  }
}
