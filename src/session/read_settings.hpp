// SPDX-License-Identifier: Apache-2.0
// Reads the settings of a session from its options and the environment.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/settings.hpp"

namespace kolo::internal::session {

/// Takes each setting from its option, otherwise from the first of its variables that is not empty,
/// otherwise from its default. Throws InvalidArgument, with the name and the value, for the first
/// value that cannot be used.
[[nodiscard]] Settings read_settings(const SessionOptions& options);

/// The environment variables that are probably misspelled settings, each with the variable that the
/// user may have meant.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> find_misspelled_variables();

}  // namespace kolo::internal::session
