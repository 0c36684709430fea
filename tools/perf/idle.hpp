// What an open session costs while it has nothing to do.
#pragma once

#include <vector>

#include "world.hpp"

namespace perf {

/// Some traffic first, then `seconds` of silence: the share of one core, in percent, that each
/// rank's process used meanwhile, over all its threads. Collective; alike on all ranks.
[[nodiscard]] std::vector<double> measure_idle(double seconds, const World& world);

}  // namespace perf
