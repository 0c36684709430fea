// SPDX-License-Identifier: Apache-2.0
#include "backend/internode/algorithms.hpp"

#include "backend/batch.hpp"
#include "base/dtype.hpp"

namespace kolo::internal::backend::internode {
namespace {

/// The bytes that an owner may send to save a message's latency.
constexpr std::int64_t max_bytes_to_save_latency = 16 << 10;

}  // namespace

InterNodeAlgorithm select_algorithm(int owners, std::int64_t elements, DType wire) {
  using enum InterNodeAlgorithm;
  // Between two owners, `whole` and `direct` send as much, but half types are shorter as results.
  if (owners == 2) return is_half(wire) ? direct : whole;
  const std::int64_t bytes = elements * signed_size_of(combined_type(wire));
  if (owners > max_owners_at_once) return bytes <= max_bytes_to_save_latency ? doubling : halving;
  return (owners - 1) * bytes <= max_bytes_to_save_latency ? whole : direct;
}

std::vector<int> factors_of(int hosts) {
  std::vector<int> factors;
  for (int factor = 2; hosts > 1; ++factor)
    for (; hosts % factor == 0; hosts /= factor) factors.push_back(factor);
  return factors;
}

std::vector<StepGroup> step_groups(int owners) {
  std::vector<StepGroup> groups;
  int distance = 1;
  for (const int factor : factors_of(owners)) {
    groups.push_back({distance, factor});
    distance *= factor;
  }
  return groups;
}

}  // namespace kolo::internal::backend::internode
