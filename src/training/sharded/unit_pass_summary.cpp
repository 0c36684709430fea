// SPDX-License-Identifier: Apache-2.0
#include "training/sharded/unit_pass_summary.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>

#include "kolo/optimizer.hpp"
#include "kolo/session.hpp"

namespace kolo::internal {

void UnitPassSummary::agree(const std::string& subject, const std::string& prefix,
                            const ShardingSets& sets, std::int64_t step) {
  std::vector<std::int32_t> all{has_failed ? 1 : 0};
  all.insert(all.end(), late.begin(), late.end());
  for (const auto& of_unit : used) all.insert(all.end(), of_unit.begin(), of_unit.end());
  sets.take_largest(all, prefix + "pass", step);
  if (all.front() != 0) {
    std::vector<std::int32_t> failures(static_cast<std::size_t>(size()));
    failures[static_cast<std::size_t>(rank())] = has_failed ? 1 : 0;
    sets.take_largest(failures, prefix + "failures", step);
    std::vector<int> ranks;
    for (int rank = 0; rank < size(); ++rank)
      if (failures[static_cast<std::size_t>(rank)] != 0) ranks.push_back(rank);
    throw BackwardFailed(fmt::format("{}: forward or backward has thrown on rank {}, so this pass "
                                     "has no valid gradients",
                                     subject, fmt::join(ranks, ", ")),
                         prefix + "pass", ranks);
  }
  auto next = all.begin() + 1;
  const auto take = [&](std::vector<std::int32_t>& values) {
    const auto end = next + static_cast<std::ptrdiff_t>(values.size());
    std::copy(next, end, values.begin());
    next = end;
  };
  take(late);
  for (auto& of_unit : used) take(of_unit);
}

}  // namespace kolo::internal
