// SPDX-License-Identifier: Apache-2.0
// Reduces a failing program to a smaller one that breaks the same promise.
#pragma once

#include <optional>

#include "judge.hpp"
#include "program.hpp"

namespace kolo::internal::simulation {

/// Runs the program and returns the violation, if there is one.
[[nodiscard]] std::optional<Violation> violation_of(const Program& program);

/// The smallest program found within about `runs` runs: without irrelevant ranks, groups of acts,
/// delays and single acts. Single acts are removed only if stalls end the session, because
/// otherwise ranks might rightly wait for them.
[[nodiscard]] Program shrink(Program program, const Violation& violation, int runs = 2000);

}  // namespace kolo::internal::simulation
