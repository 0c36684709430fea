// SPDX-License-Identifier: Apache-2.0
// One rank leaves in the way that the first argument names, while the others are in a Kolo call.
// The others print which rank is missing, and how long after the departure they learned of it.
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <span>
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

/// The leaver's part of the last batch fails, or its process is killed, after it has left.
void gather_while_leaving(const std::string& how, bool victim) {
  std::vector<std::vector<float>> large(2, std::vector<float>(large_elements));
  std::vector<kolo::Future<void>> before;
  for (std::vector<float>& tensor : large) before.push_back(kolo::allreduce_async(tensor));
  const std::vector<float> own(1000);
  std::vector<float> all(own.size() * static_cast<std::size_t>(kolo::size()));
  auto gathered = kolo::allgather_async(kolo::ConstTensorView(own),
                                        [&](std::span<const std::int64_t>) -> void* {
                                          if (victim && how == "left_killed") std::raise(SIGKILL);
                                          if (victim)
                                            throw std::runtime_error("no memory for the rows");
                                          return all.data();
                                        });
  if (victim || how == "left_killed") kolo::shutdown();
  static_cast<void>(gathered.get());
}

/// The time that the threads of this process have spent on processors, without the calling one.
std::chrono::nanoseconds used_by_other_threads() {
  std::chrono::nanoseconds used{0};
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    if (entry.path().filename() == std::to_string(::gettid())) continue;
    std::int64_t ran = 0;
    std::ifstream(entry.path() / "schedstat") >> ran;
    used += std::chrono::nanoseconds(ran);
  }
  return used;
}

/// Returns once the other threads of this process have slept through nearly all of a while.
void await_sleeping_threads() {
  constexpr auto while_ = std::chrono::milliseconds(200);
  for (;;) {
    const std::chrono::nanoseconds before = used_by_other_threads();
    std::this_thread::sleep_for(while_);
    if (used_by_other_threads() - before < while_ / 10) return;
  }
}

void reduce_large(const std::string& how, bool victim) {
  if (how == "killed_sending") reduce_large<std::vector<float>>(victim);
  if (how == "killed_sharing") reduce_large<kolo::SharedVector<float>>(victim);
}

void leave(const std::string& how) {
  std::vector<float> tensor(8);
  if (how == "exit" || how == "exit_alone") std::exit(3);
  if (how == "return") return;
  if (how == "killed" || how == "killed_and_watched") std::raise(SIGKILL);
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
  if (how == "twice") kolo::init();
  if (how == "terminates") {
    const std::vector<float> own(8);
    (void)kolo::allgather(own, [](std::span<const std::int64_t>) -> void* { std::terminate(); });
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
  const int rank = kolo::rank();
  std::vector<float> tensor(1000);
  double left_at = 0.0;
  try {
    for (int step = 0; step < 20; ++step) {
      kolo::allreduce(tensor, {.name = "gradient"});
      left_at = milliseconds();
      // On another host, the leaving rank may be gone before the others have this value.
      kolo::broadcast(left_at, leaver, {.name = "time"});
    }
    if (how == "left_failed" || how == "left_killed")
      return gather_while_leaving(how, rank == leaver);
    if (rank == leaver) return leave(how);
    while (how == "exit_alone") ::pause();  // they compute, and are ended by their launcher
    if (how == "terminates") {
      std::vector<float> all(8 * static_cast<std::size_t>(kolo::size()));
      const std::vector<float> own(8);
      (void)kolo::allgather(own, [&](std::span<const std::int64_t>) { return all.data(); });
    }
    reduce_large(how, false);
    kolo::allreduce(tensor, {.name = "gradient"});
  } catch (const kolo::PeerLeft& error) {
    std::printf("rank %d misses rank %d after %.1f ms: %s\n", rank, error.ranks().at(0),
                milliseconds() - left_at, error.what());
    std::fflush(stdout);
    if (how == "killed_and_watched") {
      await_sleeping_threads();
      std::printf("rank %d sleeps in the failed session\n", rank);
      std::fflush(stdout);
    }
    throw;
  }
}

}  // namespace

int main(int, char** argv) {
  const std::string how = argv[1];
  const int leaver = std::atoi(argv[2]);
  if (how == "uncaught" || how == "refused" || how == "twice" || how == "terminates") {
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
