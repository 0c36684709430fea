// SPDX-License-Identifier: Apache-2.0
// Prints a diagnosis as text or as JSON.
#pragma once

#include <string>
#include <vector>

#include "analysis.hpp"

namespace diagnose {

/// `damaged`: the messages about files that cannot be used.
[[nodiscard]] std::string to_text(const Diagnosis& diagnosis, const std::vector<Record>& records,
                                  const std::vector<std::string>& damaged);
[[nodiscard]] std::string to_json(const Diagnosis& diagnosis, const std::vector<Record>& records,
                                  const std::vector<std::string>& damaged);

}  // namespace diagnose
