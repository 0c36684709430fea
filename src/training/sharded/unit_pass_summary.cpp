// SPDX-License-Identifier: Apache-2.0
#include "training/sharded/unit_pass_summary.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>

#include "kolo/collectives.hpp"
#include "kolo/optimizer.hpp"
#include "training/agreement.hpp"

namespace kolo::internal {

void UnitPassSummary::agree(const std::string& subject, const std::string& prefix,
                            const ProcessSet& set, std::int64_t step) {
  std::vector<std::int32_t> all{has_failed ? 1 : 0};
  all.insert(all.end(), late.begin(), late.end());
  for (const auto& of_unit : used) all.insert(all.end(), of_unit.begin(), of_unit.end());
  const AllreduceOptions options{.name = prefix + "pass", .op = ReduceOp::max, .process_set = set};
  const TensorView view(all);
  detail::call(detail::AllreduceCall{view, view, options, step});
  if (all.front() != 0) {
    const std::vector<int> ranks = ranks_that(has_failed, prefix + "failures", set);
    throw BackwardFailed(
        fmt::format("{}: forward or backward has thrown on rank {}, so this pass has no "
                    "valid gradients",
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
