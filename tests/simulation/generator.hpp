// SPDX-License-Identifier: Apache-2.0
// Generates random programs: training steps, operations in any order, groups, joins, process sets,
// mistakes of every kind, departures and losses.
#pragma once

#include <cstdint>

#include "program.hpp"

namespace kolo::internal::simulation {

/// Every submission of the program gets an answer if the rules are kept: either no rank omits an
/// operation for which another waits, or stalls end the session. In the end every rank leaves.
[[nodiscard]] Program make_program(std::uint64_t seed);

}  // namespace kolo::internal::simulation
