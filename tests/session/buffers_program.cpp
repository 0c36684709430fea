// SPDX-License-Identifier: Apache-2.0
// The memory that the library allocates does not grow with the submitted operations: neither with
// the size of a tensor, nor with the number of operations in progress.
//
//     mpirun -np N buffers_program [lives|killed]
//
// killed: a signal ends the last rank during the operations.

#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "kolo/kolo.hpp"

namespace {

// The segments of all ranks of the host, each with 2 MiB of slots and the rings of its messages,
// and what is private: names, plans, scratch.
constexpr double private_mb = 6.0;
constexpr double mb_of_a_rank = 2.5;

double resident_mb() {
  std::ifstream file("/proc/self/status");
  double kib = 0.0;
  for (std::string line; std::getline(file, line);)
    for (const std::string_view field : {"RssAnon:", "RssShmem:"})
      if (line.starts_with(field)) kib += std::stod(line.substr(field.size()));
  return kib * 1024.0 / 1e6;
}

/// Touched at once, so that it counts from the start.
std::vector<float> tensor(std::size_t elements) { return std::vector<float>(elements, 1.0F); }

bool reduce_large(std::vector<float>& large) {
  kolo::allreduce(large, {.name = "large", .op = kolo::ReduceOp::sum});
  return large.front() == static_cast<float>(kolo::size()) && large.back() == large.front();
}

void reduce_many(std::vector<std::vector<float>>& many) {
  std::vector<kolo::Future<void>> futures;
  for (std::size_t i = 0; i < many.size(); ++i)
    futures.push_back(kolo::allreduce_async(many[i], {.name = "many." + std::to_string(i)}));
  for (kolo::Future<void>& future : futures) future.get();
}

}  // namespace

int main(int argc, char** argv) {
  const bool killed = argc > 1 && std::string_view(argv[1]) == "killed";
  std::vector<float> large = tensor(std::size_t{48} << 20);                // 192 MiB
  std::vector<std::vector<float>> many(64, tensor(std::size_t{1} << 18));  // 64 MiB
  const double before = resident_mb();
  const kolo::Session session;
  const double started = resident_mb();
  const bool right = reduce_large(large);
  reduce_many(many);
  kolo::broadcast(large, 0, {.name = "broadcast"});
  double taken = resident_mb() - before;
  const double allowed = private_mb + mb_of_a_rank * kolo::local_size();
  std::printf("rank %d: %.1f MB at the start, %.1f MB in all, at most %.1f\n", kolo::rank(),
              started - before, taken, allowed);
  if (killed && kolo::rank() == kolo::size() - 1) std::raise(SIGKILL);
  kolo::allreduce(large, {.name = "again"});
  kolo::allreduce(taken, {.op = kolo::ReduceOp::max});
  return right && taken < allowed ? 0 : 1;
}
