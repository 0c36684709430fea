// SPDX-License-Identifier: Apache-2.0
// Trains until another host is lost, and reports when this rank learned of it.
//
//   loss_program DIRECTORY
//
// After its first steps each rank creates the file DIRECTORY/ready.RANK. A rank that gets PeerLeft
// writes DIRECTORY/lost.RANK: the time of the monotonic clock in seconds, and the message. Files
// work without the network, which is cut off.
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "kolo/kolo.hpp"

namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string file_name(const std::string& directory, const char* what) {
  return directory + "/" + what + "." + std::to_string(kolo::rank());
}

void train(const std::string& directory) {
  std::vector<float> small(100, 1.0F);
  std::vector<float> large(1'000'000, 1.0F);
  std::vector<std::byte> rows(1000);
  for (int step = 0;; ++step) {
    kolo::allreduce(small, {.name = "small"});
    kolo::allreduce(large, {.name = "large"});
    (void)kolo::allgather(rows, {.name = "rows"});
    if (step == 3) std::ofstream(file_name(directory, "ready")) << "ready\n";
  }
}

}  // namespace

int main(int, char** argv) {
  const std::string directory = argv[1];
  const kolo::Session session;
  const std::string report = file_name(directory, "lost");
  try {
    train(directory);
  } catch (const kolo::PeerLeft& error) {
    std::ofstream(report) << std::fixed << seconds_now() << ' ' << error.what() << '\n';
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "something else: %s\n", error.what());
    return 2;
  }
}
