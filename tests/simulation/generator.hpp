// SPDX-License-Identifier: Apache-2.0
// Generates random programs: training steps, operations in any order, groups, joins, process sets,
// mistakes of every kind, departures and losses.
#pragma once

#include <cstdint>

#include "program.hpp"

namespace kolo::internal::simulation {

/// Every submission of it gets an answer, if the rules are kept: either no rank leaves out anything
/// that another waits for, or stalls are ended. In the end every rank leaves.
[[nodiscard]] Program make_program(std::uint64_t seed);

}  // namespace kolo::internal::simulation
