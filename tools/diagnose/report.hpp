// SPDX-License-Identifier: Apache-2.0
// A diagnosis for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "analysis.hpp"

namespace diagnose {

/// `damaged`: what was wrong with files that could not be read.
[[nodiscard]] std::string to_text(const Diagnosis& diagnosis, const std::vector<Record>& records,
                                  const std::vector<std::string>& damaged);
[[nodiscard]] std::string to_json(const Diagnosis& diagnosis, const std::vector<Record>& records,
                                  const std::vector<std::string>& damaged);

}  // namespace diagnose
