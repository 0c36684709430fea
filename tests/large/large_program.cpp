// SPDX-License-Identifier: Apache-2.0
// Tensors of more than 2^31 elements, and of more than 2^32 bytes together. Needs 7 GB of memory
// on 2 ranks.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "kolo/kolo.hpp"

namespace {

constexpr std::int64_t elements = (std::int64_t{1} << 31U) + 1021;

using Bytes = std::unique_ptr<std::uint8_t[]>;

Bytes allocate(std::int64_t count) {
  return std::make_unique_for_overwrite<std::uint8_t[]>(static_cast<std::size_t>(count));
}

/// Differs between neighbors, ranks, and positions that are 2^31 or 2^32 apart.
std::uint8_t value(std::int64_t i, int rank) {
  return static_cast<std::uint8_t>(i % 61 + 3 * rank);
}

void fill(std::uint8_t* bytes, std::int64_t count, int rank) {
  for (std::int64_t i = 0; i < count; ++i) bytes[i] = value(i, rank);
}

template <typename Expected>
void check(const std::string& what, const std::uint8_t* bytes, std::int64_t count,
           Expected expected) {
  for (std::int64_t i = 0; i < count; ++i)
    if (bytes[i] != expected(i))
      throw std::runtime_error(what + ": element " + std::to_string(i) + " is " +
                               std::to_string(bytes[i]) + ", not " + std::to_string(expected(i)));
  if (kolo::rank() == 0) std::printf("%s: fine\n", what.c_str());
  std::fflush(stdout);
}

void allreduce() {
  const Bytes tensor = allocate(elements);
  fill(tensor.get(), elements, kolo::rank());
  kolo::allreduce(kolo::TensorView(tensor.get(), {elements}), {.op = kolo::ReduceOp::sum});
  const int n = kolo::size();
  check("allreduce", tensor.get(), elements, [n](std::int64_t i) {
    int sum = 0;
    for (int rank = 0; rank < n; ++rank) sum += value(i, rank);
    return static_cast<std::uint8_t>(sum);
  });
}

void broadcast() {
  const int root = kolo::size() - 1;
  const Bytes tensor = allocate(elements);
  fill(tensor.get(), elements, kolo::rank());
  kolo::broadcast(kolo::TensorView(tensor.get(), {elements}), root);
  check("broadcast", tensor.get(), elements, [root](std::int64_t i) { return value(i, root); });
}

/// Rank 0 contributes nearly everything, the others a little each.
void allgather() {
  const int rank = kolo::rank();
  const std::int64_t count = rank == 0 ? elements : 5 * rank;
  const Bytes mine = allocate(count);
  fill(mine.get(), count, rank);
  Bytes all;
  std::int64_t total = 0;
  const auto rows = kolo::allgather(kolo::ConstTensorView(mine.get(), {count}),
                                    [&](std::span<const std::int64_t> counts) -> void* {
                                      for (const std::int64_t one : counts) total += one;
                                      all = allocate(total);
                                      return all.get();
                                    });
  if (rows.front() != elements) throw std::runtime_error("allgather: wrong counts");
  int from = 0;
  std::int64_t first = 0;
  check("allgather", all.get(), total, [&](std::int64_t i) {
    while (i - first == rows[static_cast<std::size_t>(from)])
      first += rows[static_cast<std::size_t>(from++)];
    return value(i - first, from);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const kolo::Session session(argc, argv);
  allreduce();
  broadcast();
  allgather();
}
