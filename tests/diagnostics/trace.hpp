// SPDX-License-Identifier: Apache-2.0
// Reads a timeline strictly, and checks it against the rules of the format.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kolo::internal::test {

/// Throws nlohmann::json::exception for text that is not JSON.
[[nodiscard]] nlohmann::json read_trace(const std::string& path);

/// A description of the first violation of the rules; "" if there is none. `whole`: the timeline
/// was closed, so every B must have its E.
[[nodiscard]] std::string check_trace(const nlohmann::json& trace, bool whole = true);

/// The events of this phase ("X", "B", ...) and name.
[[nodiscard]] std::vector<nlohmann::json> find_events(const nlohmann::json& trace,
                                                      const std::string& phase,
                                                      const std::string& name);

}  // namespace kolo::internal::test
