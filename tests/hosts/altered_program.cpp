// SPDX-License-Identifier: Apache-2.0
// Reduces and broadcasts over a network that alters bytes, and checks all results.
//
//   altered_program ROUNDS
//
// Exit status: 0 if all results were right; 1 if an operation or the start failed; 3 if a result
// was wrong. `text` travels in each broadcast, so that a recording shows whether it was encrypted.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "kolo/kolo.hpp"

namespace {

constexpr std::string_view text = "a text that nobody on the network may read; ";

std::vector<std::byte> repeated(std::size_t bytes) {
  std::vector<std::byte> all(bytes);
  for (std::size_t i = 0; i < bytes; ++i) all[i] = static_cast<std::byte>(text[i % text.size()]);
  return all;
}

bool round_is_right(int round) {
  bool right = true;
  for (const std::size_t size : {10UL, 1000UL, 100'000UL}) {
    std::vector<float> values(size);
    for (std::size_t i = 0; i < size; ++i)
      values[i] = static_cast<float>((i + static_cast<std::size_t>(round)) % 1000);
    const std::vector<float> before = values;
    kolo::allreduce(values, {.name = "values." + std::to_string(size), .op = kolo::ReduceOp::sum});
    for (std::size_t i = 0; i < size; ++i)
      right = right && values[i] == before[i] * static_cast<float>(kolo::size());
    const std::vector<std::byte> expected = repeated(size);
    std::vector<std::byte> received(size);
    if (kolo::rank() == 0) received = expected;
    kolo::broadcast(received, 0, {.name = "text." + std::to_string(size)});
    right = right && received == expected;
  }
  return right;
}

}  // namespace

int main(int, char** argv) {
  try {
    const kolo::Session session;
    for (int round = 0; round < std::atoi(argv[1]); ++round)
      if (!round_is_right(round)) {
        std::fprintf(stderr, "rank %d: WRONG in round %d\n", kolo::rank(), round);
        std::_Exit(3);  // the first status that kolorun sees is that of the job
      }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "failed: %s\n", error.what());
    return 1;
  }
}
