// SPDX-License-Identifier: Apache-2.0
// Starts sessions with the rank and size that its launcher sets, and prints the results.
#include <cstdio>
#include <exception>

#include "kolo/kolo.hpp"

int main() {
  try {
    for (int round = 0; round < 2; ++round) {
      const kolo::Session session;
      int sum = 1;
      kolo::allreduce(sum, {.name = "ones", .op = kolo::ReduceOp::sum});
      std::printf("rank %d of %d, sum %d\n", kolo::rank(), kolo::size(), sum);
    }
    return 0;
  } catch (const kolo::InvalidArgument& error) {
    std::printf("refused: %s\n", error.what());
  }
  try {  // a second attempt is not let through
    const kolo::Session session;
    std::printf("rank %d of %d\n", kolo::rank(), kolo::size());
  } catch (const kolo::InvalidArgument&) {
    return 3;
  }
}
