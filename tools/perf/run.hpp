// The whole run, from options to report.
#pragma once

#include "options.hpp"
#include "world.hpp"

namespace perf {

/// What can be told only once the number of ranks and nodes is known. Throws UsageError.
void check_options(const Options& options, const World& world);

/// Measures and reports, with Kolo's session open. Collective. Returns the elements that were
/// wrong, over all ranks and both sides.
[[nodiscard]] std::int64_t run(const Options& options, const World& world);

}  // namespace perf
