// One rank against all.
#pragma once

#include <vector>

#include "image_folder.hpp"
#include "options.hpp"
#include "trainer.hpp"

namespace xray {

/// Trains on all ranks, with `--compare` on rank 0 alone before. What rank 0 has seen is returned
/// there; the other ranks have only the second. Collective.
[[nodiscard]] std::vector<Outcome> train(const Options& options, const Split& files);

/// A table with a line for each.
void print_table(const std::vector<Outcome>& outcomes);

}  // namespace xray
