// SPDX-License-Identifier: Apache-2.0
// One rank leaves in the way that the first argument names, while the others are in a Kolo call.
// The others print which rank is missing, and how long after the departure they learned of it.
#include <pthread.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kolo/kolo.hpp"

namespace {

// Takes longer than a rank needs to be killed in the middle of it.
constexpr std::size_t large_elements = std::size_t{8} << 20;

// Comparable between the processes of one host.
double milliseconds() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// The victim is killed in the middle.
template <typename Vector>
void reduce_large(bool victim) {
  Vector large(large_elements);
  if (victim) {
    kolo::Future<void> pending = kolo::allreduce_async(large, {.name = "large"});
    (void)pending.wait_for(std::chrono::milliseconds(10));  // any moment will do
    std::raise(SIGKILL);
  }
  kolo::allreduce(large, {.name = "large"});
}

void reduce_large(const std::string& how, bool victim) {
  if (how == "killed_sending") reduce_large<std::vector<float>>(victim);
  if (how == "killed_sharing") reduce_large<kolo::SharedVector<float>>(victim);
}

void leave(const std::string& how) {
  std::vector<float> tensor(8);
  if (how == "exit") std::exit(3);
  if (how == "return") return;
  if (how == "killed") std::raise(SIGKILL);
  reduce_large(how, true);
  if (how == "handler") {  // as libraries do, and programs that save their state
    std::signal(SIGALRM, [](int) { std::exit(3); });
    std::thread([thread = ::pthread_self()] {
      // From its first sleep on it waits.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ::pthread_kill(thread, SIGALRM);
    }).detach();
    kolo::allreduce(tensor, {.name = "of the leaver"});
  }
  if (how == "static") {
    static std::vector<float> given(8);
    static const kolo::Future<void> pending =
        kolo::allreduce_async(given, {.name = "of the leaver"});
    std::exit(3);
  }
  if (how == "refused") {  // the second time
    const kolo::Future<void> pending = kolo::barrier_async({.name = "of the leaver"});
    kolo::barrier({.name = "of the leaver"});
  }
  if (how == "future") {
    const kolo::Future<void> pending = kolo::allreduce_async(tensor, {.name = "of the leaver"});
    throw std::runtime_error("with a pending future");
  }
  throw std::runtime_error("thrown on purpose");
}

void train(const std::string& how, int leaver) {
  const kolo::Session session;
  std::vector<float> tensor(1000);
  double left_at = 0.0;
  try {
    for (int step = 0; step < 20; ++step) {
      kolo::allreduce(tensor, {.name = "gradient"});
      left_at = milliseconds();
      // On another host, the leaving rank may be gone before the others have this value.
      kolo::broadcast(left_at, leaver, {.name = "time"});
    }
    if (kolo::rank() == leaver) return leave(how);
    reduce_large(how, false);
    kolo::allreduce(tensor, {.name = "gradient"});
  } catch (const kolo::PeerLeft& error) {
    std::printf("rank %d misses rank %d after %.1f ms: %s\n", kolo::rank(), error.ranks().at(0),
                milliseconds() - left_at, error.what());
    std::fflush(stdout);
    throw;
  }
}

}  // namespace

int main(int, char** argv) {
  const std::string how = argv[1];
  const int leaver = std::atoi(argv[2]);
  if (how == "uncaught" || how == "refused") {
    train(how, leaver);
    return 0;
  }
  try {
    train(how, leaver);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "caught: %s\n", error.what());
    return 1;
  }
}
