// SPDX-License-Identifier: Apache-2.0
#include "backend/internode/host_order.hpp"

namespace kolo::internal::backend::internode {

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
