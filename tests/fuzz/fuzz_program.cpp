// SPDX-License-Identifier: Apache-2.0
// One target under libFuzzer, named by KOLO_FUZZ_TARGET. At exit, the program prints the number of
// inputs that the decoder accepted. KOLO_FUZZ_MAX_BYTES lets it try longer inputs than those from
// which it learns more. With KOLO_FUZZ_SEEDS=DIRECTORY it writes the seeds of all targets to
// DIRECTORY/<target>/<name> instead, and ends.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>

#include "target.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace {

namespace fs = std::filesystem;

const kolo::internal::fuzz::Target* target = nullptr;
std::size_t max_bytes = 0;
unsigned long long tried = 0;
unsigned long long accepted = 0;

void print_accepted() { std::fprintf(stderr, "fuzz: accepted %llu of %llu\n", accepted, tried); }

void write_seeds(const fs::path& directory) {
  for (const kolo::internal::fuzz::Target& one : kolo::internal::fuzz::targets()) {
    const fs::path folder = directory / one.name;
    fs::create_directories(folder);
    for (const kolo::internal::fuzz::Seed& seed : one.seeds()) {
      std::ofstream file(folder / seed.name, std::ios::binary);
      file.exceptions(std::ios::badbit | std::ios::failbit);
      file.write(seed.bytes.data(), static_cast<std::streamsize>(seed.bytes.size()));
      file.close();
    }
  }
}

[[noreturn]] void write_seeds_and_exit(const char* directory) {
  try {
    write_seeds(directory);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz: cannot write the seeds: %s\n", error.what());
    std::exit(EXIT_FAILURE);
  }
  std::exit(EXIT_SUCCESS);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  if (const char* const seeds = std::getenv("KOLO_FUZZ_SEEDS")) write_seeds_and_exit(seeds);
  const char* const name = std::getenv("KOLO_FUZZ_TARGET");
  if (name != nullptr) target = kolo::internal::fuzz::find_target(name);
  if (target == nullptr) {
    std::fputs("KOLO_FUZZ_TARGET must be one of", stderr);
    for (const kolo::internal::fuzz::Target& one : kolo::internal::fuzz::targets())
      std::fprintf(stderr, " %.*s", static_cast<int>(one.name.size()), one.name.data());
    std::fputc('\n', stderr);
    std::exit(EXIT_FAILURE);
  }
  max_bytes = target->max_bytes;
  if (const char* const most = std::getenv("KOLO_FUZZ_MAX_BYTES"))
    max_bytes = std::max<std::size_t>(max_bytes, std::strtoul(most, nullptr, 10));
  std::atexit(print_accepted);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > max_bytes) return -1;
  ++tried;
  if (target->run({data, size})) ++accepted;
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  const std::size_t mutated = LLVMFuzzerMutate(data, size, most);
  constexpr unsigned unrepaired_share = 8;  // 1 of 8: wrong checksums are inputs, too
  if (target->repair != nullptr && seed % unrepaired_share != 0) target->repair({data, mutated});
  return mutated;
}
