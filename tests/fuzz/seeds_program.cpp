// Writes the seeds of all targets: DIRECTORY/<target>/<name>.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>

#include "target.hpp"

namespace {

namespace fs = std::filesystem;

void write(const fs::path& directory) {
  for (const kolo::fuzz::Target& target : kolo::fuzz::targets()) {
    const fs::path folder = directory / target.name;
    fs::create_directories(folder);
    for (const kolo::fuzz::Seed& seed : target.seeds()) {
      std::ofstream file(folder / seed.name, std::ios::binary);
      file.exceptions(std::ios::badbit | std::ios::failbit);
      file.write(seed.bytes.data(), static_cast<std::streamsize>(seed.bytes.size()));
      file.close();
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: fuzz_seeds DIRECTORY\n", stderr);
    return EXIT_FAILURE;
  }
  try {
    write(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_seeds: %s\n", error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
