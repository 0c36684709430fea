// SPDX-License-Identifier: Apache-2.0
// Calls Kolo until a call throws, and prints why.
#include <cstdio>
#include <exception>

#include "kolo/kolo.hpp"

int main() {
  try {
    const kolo::Session session;
    for (int round = 0;; ++round) {
      kolo::barrier();
      if (round == 0) std::printf("rank %d has begun\n", kolo::rank());
      std::fflush(stdout);
    }
  } catch (const std::exception& error) {
    std::printf("ended: %s\n", error.what());
    return 1;
  }
}
