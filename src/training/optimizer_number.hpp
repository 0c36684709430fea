// Two optimizers may have parameters of one name: their operations carry the optimizer's number.
#pragma once

#include <cstdint>

#include "kolo/export.hpp"  // kolo::torch, another library, uses what is marked
#include "kolo/process_set.hpp"

namespace kolo::detail {

/// Collective: a number that no optimizer of the set had before on any of its ranks.
[[nodiscard]] KOLO_EXPORT std::int64_t agree_on_optimizer_number(const ProcessSet& set);

}  // namespace kolo::detail
