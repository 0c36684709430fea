// libFuzzer's side of a target. KOLO_FUZZ_TARGET names it; at the end it says how many of the
// inputs the decoder accepted.
#include <cstdio>
#include <cstdlib>

#include "target.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace {

const kolo::fuzz::Target* target = nullptr;
unsigned long long tried = 0;
unsigned long long accepted = 0;

void say_accepted() { std::fprintf(stderr, "fuzz: accepted %llu of %llu\n", accepted, tried); }

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* const name = std::getenv("KOLO_FUZZ_TARGET");
  if (name != nullptr) target = kolo::fuzz::find_target(name);
  if (target == nullptr) {
    std::fputs("KOLO_FUZZ_TARGET must be one of", stderr);
    for (const kolo::fuzz::Target& one : kolo::fuzz::targets())
      std::fprintf(stderr, " %.*s", static_cast<int>(one.name.size()), one.name.data());
    std::fputc('\n', stderr);
    std::exit(EXIT_FAILURE);
  }
  std::atexit(say_accepted);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > target->most_bytes) return -1;
  ++tried;
  if (target->run({data, size})) ++accepted;
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  const std::size_t mutated = LLVMFuzzerMutate(data, size, most);
  constexpr unsigned left_wrong = 8;  // one of so many
  if (target->repair != nullptr && seed % left_wrong != 0) target->repair({data, mutated});
  return mutated;
}
