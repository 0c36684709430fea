// SPDX-License-Identifier: Apache-2.0
// The parts that all decisions by a best metric share.
#pragma once

#include <optional>

#include "kolo/process_set.hpp"
#include "kolo/training/best_metric.hpp"
#include "training/state_text.hpp"

namespace kolo::internal {

/// Throws InvalidArgument, naming the class `owner`, for a threshold that is negative or not
/// finite.
void require_valid(const Improvement& improvement, const char* owner);

/// Collective. The weighted mean over the ranks. It is NaN, which counts as no improvement, if no
/// rank has any weight. Throws InvalidArgument, naming the class `owner`, for a weight that is
/// negative or not finite.
[[nodiscard]] double average_over(double metric, double weight, const ProcessSet& set,
                                  const char* owner);

void write_best(StateWriter& writer, const std::optional<double>& best);
[[nodiscard]] std::optional<double> read_best(StateReader& reader);

}  // namespace kolo::internal
