// SPDX-License-Identifier: Apache-2.0
// How long a training step waits for a checkpoint of ResNet-50 and its momentum: `save`, and
// `save_async`, which copies, alternating.
//
//   mpirun -np N bench-checkpoint-pause DIRECTORY [ROUNDS]
//
// Prints `save_ms,save_async_ms,ratio`: medians over ROUNDS (default 11) of the slowest rank, after
// a round that allocates the memory for the copy. Then, on rank 0, the memory that a `save_async`
// has added, and this rank's share: the bytes of its file.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <kolo/kolo.hpp>
#include <string>
#include <vector>

#include "blocks.hpp"
#include "gradient_sets.hpp"

namespace {

/// The memory of this process that is not shared, in bytes.
double own_memory() {
  std::ifstream file("/proc/self/statm");
  double size = 0, resident = 0, shared = 0;
  file >> size >> resident >> shared;
  return (resident - shared) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

struct Training {
  Training() {
    for (const perf::Gradient& gradient : perf::resnet50()) {
      for (const char* kind : {"model.", "momentum."}) {
        auto& tensor =
            tensors.emplace_back(static_cast<std::size_t>(gradient.shape.elements()), 1.F);
        views.emplace(kind + gradient.name, kolo::ConstTensorView(tensor.data(), gradient.shape));
      }
    }
  }
  std::vector<std::vector<float>> tensors{};
  kolo::ConstTensorViews views{};
};

void measure(const std::string& directory, int rounds) {
  const kolo::Session session;
  const Training training;
  kolo::Checkpointer checkpoints({.directory = directory});
  const kolo::NamedViews parts{{"training", kolo::StateView(training.views)}};
  std::int64_t step = 0;
  kolo::barrier();
  const double before = own_memory();
  checkpoints.save_async(++step, parts);
  const double copied = own_memory() - before;
  checkpoints.wait();

  std::vector<double> save, save_async;
  for (int round = 0; round < rounds; ++round) {
    save.push_back(blocks::time_of(1, [&] { checkpoints.save(++step, parts); }));
    save_async.push_back(blocks::time_of(1, [&] { checkpoints.save_async(++step, parts); }));
    checkpoints.wait();
  }
  double share = 0;
  const auto latest = checkpoints.latest();
  if (kolo::rank() != 0) return;
  for (const auto& entry : std::filesystem::directory_iterator(*latest))
    if (entry.path().filename().string().starts_with("model-00001"))
      share = static_cast<double>(entry.file_size());
  const double whole = blocks::median(save), pause = blocks::median(save_async);
  std::printf("save_ms,save_async_ms,ratio\n%.1f,%.1f,%.3f\n", whole, pause, pause / whole);
  std::printf("memory_mib,share_mib\n%.1f,%.1f\n", copied / 1048576, share / 1048576);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 11;
  if (argc < 2 || rounds < 1) return 2;
  measure(argv[1], rounds);
}
