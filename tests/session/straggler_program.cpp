// SPDX-License-Identifier: Apache-2.0
// Trains with one rank that computes longer than the others before one of its gradients, until the
// status file of rank 0 names a straggler, or for a number of steps; then prints the status.
// `-` leaves the file to KOLO_STATUS_FILE.
//
// Usage: straggler_program json|prom|FILE|- LATE_RANK LATE_MS LAYER [STEPS]
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "kolo/kolo.hpp"

namespace {

constexpr int layers = 6;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void step(int late_layer, std::chrono::milliseconds late) {
  static std::vector<std::vector<float>> gradients(layers, std::vector<float>(1000));
  std::vector<kolo::Future<void>> pending;
  for (int layer = layers - 1; layer >= 0; --layer) {
    const auto usual = std::chrono::milliseconds(5);
    std::this_thread::sleep_for(layer == late_layer ? usual + late : usual);
    pending.push_back(kolo::allreduce_async(gradients[static_cast<std::size_t>(layer)],
                                            {.name = "layer" + std::to_string(layer) + ".weight"}));
  }
  for (kolo::Future<void>& one : pending) one.get();
}

}  // namespace

int main(int count, char** values) {
  std::string path = values[1];
  if (path == "json" || path == "prom")
    path = "straggler." + std::to_string(::getpid()) + "." + path;
  const int late_rank = std::atoi(values[2]);
  const std::chrono::milliseconds late(std::atoi(values[3]));
  const int late_layer = std::atoi(values[4]);
  const int steps = count > 5 ? std::atoi(values[5]) : 0;
  kolo::SessionOptions options;
  if (path != "-") options.status_file = path;
  const kolo::Session session(options);
  const bool is_late = kolo::rank() == late_rank;
  for (int done = 1, ends = 0; ends == 0; ++done) {
    step(is_late ? late_layer : -1, late);
    if (kolo::rank() == 0)
      ends = steps > 0 ? done == steps
                       : text_of(path).find("\"straggler\":{") != std::string::npos ||
                             text_of(path).find("kolo_late_seconds{") != std::string::npos;
    kolo::broadcast(ends, 0, {.name = "ends"});
    if (ends != 0 && kolo::rank() == 0)
      std::printf("after %d steps:\n%s", done, text_of(path).c_str());
  }
}
