// Trains until another host is lost, and reports when that was learned of.
//
//   loss_program DIRECTORY
//
// Once the first steps are done each rank makes the file DIRECTORY/ready.RANK. Who gets PeerLeft
// writes DIRECTORY/lost.RANK: the time on the monotonic clock, in seconds, and what was said. The
// others could not be told otherwise when there is no network.
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
