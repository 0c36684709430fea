// SPDX-License-Identifier: Apache-2.0
// Reduces a failing program to a smaller one that breaks the same promise.
#pragma once

#include <optional>

#include "judge.hpp"
#include "program.hpp"

namespace kolo::internal::simulation {

/// Runs the program. What it broke, if anything.
[[nodiscard]] std::optional<Violation> violation_of(const Program& program);

/// The least that was found within about `runs` runs: without ranks, groups of acts, single acts
/// (where stalls are ended: else others might wait for them rightly) and delays that do not matter.
[[nodiscard]] Program shrink(Program program, const Violation& violation, int runs = 2000);

}  // namespace kolo::internal::simulation
