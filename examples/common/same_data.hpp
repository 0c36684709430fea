// A check before training.
#pragma once

#include <cstdint>
#include <vector>

namespace examples {

/// Ranks that see different files would take different numbers of steps, and wait for each other.
/// Throws kolo::Error on every rank if any has sets of other sizes than rank 0. Collective.
void check_same_sizes(const std::vector<std::int64_t>& images);

}  // namespace examples
