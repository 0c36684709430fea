// SPDX-License-Identifier: Apache-2.0
// Reads the settings of a session from its options and the environment.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/settings.hpp"

namespace kolo::internal::session {

/// Each setting from its option, else from the first of its variables that is not empty, else its
/// default. Throws InvalidArgument for the first value that cannot be used, with the variable (or
/// option) and the value.
[[nodiscard]] Settings read_settings(const SessionOptions& options);

/// Variables of the environment that are probably misspelled settings, each with the variable that
/// may be meant.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> find_misspelled_variables();

}  // namespace kolo::internal::session
