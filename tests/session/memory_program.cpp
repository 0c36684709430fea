// SPDX-License-Identifier: Apache-2.0
// Many small operations do not leak memory: the resident memory after some operations is the same
// as after five times as many. The argument says whether the operations have names.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "kolo/kolo.hpp"

namespace {

constexpr int warm_up = 20'000;
constexpr int operations = 100'000;
constexpr int at_once = 100;
constexpr double allowed_mb = 3.0;

double resident_mb() {
  std::ifstream file("/proc/self/statm");
  double total = 0.0;
  double resident = 0.0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

enum class Names { repeating, fresh, none };

void work(int begin, int end, Names names) {
  std::vector<std::vector<float>> tensors(at_once, std::vector<float>(16, 1.0F));
  for (int done = begin; done < end; done += at_once) {
    std::vector<kolo::Future<void>> futures;
    for (int i = 0; i < at_once; ++i) {
      std::string name;
      if (names == Names::repeating) name = "gradient of layer number " + std::to_string(i);
      if (names == Names::fresh) name = "gradient of step number " + std::to_string(done + i);
      futures.push_back(
          kolo::allreduce_async(tensors[static_cast<std::size_t>(i)], {.name = std::move(name)}));
    }
    for (kolo::Future<void>& future : futures) future.get();
  }
}

}  // namespace

int main(int, char** argv) {
  const std::string how = argv[1];
  const Names names = how == "repeating" ? Names::repeating
                      : how == "fresh"   ? Names::fresh
                                         : Names::none;
  const kolo::Session session({.cache_capacity = 200});
  work(0, warm_up, names);
  const double before = resident_mb();
  work(warm_up, operations, names);
  double grown = resident_mb() - before;
  std::printf("rank %d grew by %.2f MB\n", kolo::rank(), grown);
  kolo::allreduce(grown, {.op = kolo::ReduceOp::max});
  return grown < allowed_mb ? 0 : 1;
}
