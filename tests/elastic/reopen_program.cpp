// SPDX-License-Identifier: Apache-2.0
// Starts one session after another in the same process; most of them fail. No resources may leak.
//
//   reopen_program SESSIONS
//   reopen_program lost       rank 1 is killed; the others try to start another session
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <kolo/kolo.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// The resources of this process.
struct Resources {
  long descriptors = 0;
  long threads = 0;
  long mappings = 0;
  long pages = 0;  // resident
};

long entries_of(const char* folder) {
  return static_cast<long>(std::distance(std::filesystem::directory_iterator(folder),
                                         std::filesystem::directory_iterator()));
}

/// A thread that was joined may be listed for a moment.
long count_threads(long expected) {
  long threads = entries_of("/proc/self/task");
  for (int look = 0; threads > expected && look < 1000; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    threads = entries_of("/proc/self/task");
  }
  return threads;
}

Resources count_resources() {
  std::ifstream maps("/proc/self/maps");
  std::ifstream memory("/proc/self/statm");
  Resources now{.descriptors = entries_of("/proc/self/fd"),
                .threads = entries_of("/proc/self/task"),
                .mappings = std::count(std::istreambuf_iterator<char>(maps), {}, '\n')};
  long all = 0;
  memory >> all >> now.pages;
  return now;
}

/// A session. In two of three, a rank leaves while the others wait for it. The vector is that of an
/// earlier session.
void open_one(int number, std::optional<kolo::SharedVector<double>>& kept) {
  kolo::init();
  if (!kept) kept.emplace(100'000);
  std::fill(kept->begin(), kept->end(), kolo::rank() + 1.0);
  kolo::allreduce(*kept, {.name = "kept", .op = kolo::ReduceOp::sum});
  const double sum = kolo::size() * (kolo::size() + 1) / 2.0;
  require(std::ranges::all_of(*kept, [&](double each) { return each == sum; }), "a wrong sum");
  if (number % 3 == 0) return kolo::shutdown();
  if (kolo::rank() == number % kolo::size()) {
    kolo::shutdown();
  } else {
    bool left = false;
    try {
      std::vector<double> pending(100'000);
      kolo::allreduce(pending, {.name = "pending"});
    } catch (const kolo::PeerLeft&) {
      left = true;
    }
    require(left, "no PeerLeft");
    kolo::shutdown();
  }
}

void require_old_set_refused(const kolo::ProcessSet& set) {
  try {
    kolo::barrier(set);
  } catch (const kolo::InvalidArgument& error) {
    require(std::strstr(error.what(), "is of an earlier session") != nullptr, error.what());
    return;
  }
  throw std::runtime_error("a process set of an earlier session works");
}

void run(int sessions) {
  std::optional<kolo::SharedVector<double>> kept;
  kolo::init();
  const kolo::ProcessSet old = kolo::add_process_set({0});
  kolo::shutdown();
  kolo::init();
  require_old_set_refused(old);
  kolo::shutdown();
  Resources before;
  for (int number = 0; number < sessions; ++number) {
    if (number == sessions / 2) before = count_resources();
    open_one(number, kept);
  }
  const Resources after = count_resources();
  const auto compare = [](const char* what, long first, long last, long allowed) {
    require(last <= first + allowed, fmt::format("{} {}, and later {}", first, what, last));
  };
  compare("descriptors", before.descriptors, after.descriptors, 0);
  compare("threads", before.threads, count_threads(before.threads), 0);
  compare("mappings", before.mappings, after.mappings, 2);  // the heap of malloc
  compare("pages", before.pages, after.pages, 256);
}

/// Under mpirun, no session follows.
void lose_a_rank() {
  kolo::init();
  if (kolo::rank() == 1) ::raise(SIGKILL);
  try {
    kolo::barrier();
  } catch (const kolo::PeerLeft&) {
    kolo::shutdown();
    kolo::init();
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 1 && std::string(argv[1]) == "lost") {
      lose_a_rank();
      return 0;
    }
    run(argc > 1 ? std::atoi(argv[1]) : 30);
    std::cout << "nothing accumulates\n";
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "reopen_program: " << error.what() << '\n';
    return 1;
  }
}
