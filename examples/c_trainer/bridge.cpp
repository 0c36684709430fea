// SPDX-License-Identifier: Apache-2.0
// The only file of the program in C++20. No exception may leave a function that C calls.
#include "bridge.h"

#include <cstdio>
#include <exception>
#include <kolo/kolo.hpp>

template <typename Call>
static int guarded(const Call& call) {
  try {
    call();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return -1;
  }
}

int bridge_start(int argc, char** argv) {
  return guarded([&] { kolo::init(argc, argv); });
}
void bridge_end() { kolo::shutdown(); }
int bridge_rank() { return kolo::rank(); }
int bridge_size() { return kolo::size(); }

int bridge_broadcast(float* values, size_t count) {
  return guarded([&] { kolo::broadcast(kolo::TensorView(values, {count}), /*root=*/0); });
}
int bridge_sum(float* values, size_t count) {
  return guarded(
      [&] { kolo::allreduce(kolo::TensorView(values, {count}), {.op = kolo::ReduceOp::sum}); });
}
