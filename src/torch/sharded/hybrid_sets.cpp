// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "kolo/torch/fully_sharded.hpp"

namespace kolo {

HybridSets add_hybrid_sets(int ranks_per_copy) {
  if (ranks_per_copy < 1 || size() % ranks_per_copy != 0)
    throw InvalidArgument("add_hybrid_sets: ranks_per_copy is " + std::to_string(ranks_per_copy) +
                          ", which does not divide the " + std::to_string(size()) + " ranks");
  HybridSets own;
  for (int first = 0; first < size(); first += ranks_per_copy) {
    std::vector<int> copy(static_cast<std::size_t>(ranks_per_copy));
    std::iota(copy.begin(), copy.end(), first);
    const ProcessSet set = add_process_set(copy);
    if (set.contains(rank())) own.process_set = set;
  }
  for (int index = 0; index < ranks_per_copy; ++index) {
    std::vector<int> replicas;
    for (int rank = index; rank < size(); rank += ranks_per_copy) replicas.push_back(rank);
    const ProcessSet set = add_process_set(replicas);
    if (set.contains(rank())) own.replicas = set;
  }
  return own;
}

}  // namespace kolo
