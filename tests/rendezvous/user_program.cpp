// SPDX-License-Identifier: Apache-2.0
// Adds up the numbers of the users whom the ranks belong to. Exits with 0 if all are this one, with
// 3 if not, and with 1 if the session fails.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <exception>

#include "kolo/kolo.hpp"

int main() {
  try {
    const kolo::Session session;
    const auto own = static_cast<std::int64_t>(::geteuid());
    std::int64_t sum = own;
    kolo::allreduce(sum, {.name = "users", .op = kolo::ReduceOp::sum});
    std::printf("user %lld: rank %d of %d\n", static_cast<long long>(own), kolo::rank(),
                kolo::size());
    return sum == own * kolo::size() ? 0 : 3;
  } catch (const std::exception& error) {
    std::printf("ended: %s\n", error.what());
    return 1;
  }
}
