// SPDX-License-Identifier: Apache-2.0
// The status of a job as text for tools.
#pragma once

#include <string>

#include "base/pace.hpp"

namespace kolo::internal::diagnostics {

/// `"rank 2 is late by 20.0 ms per step of 120 ms, since step 1200: it computes longer ..."`.
[[nodiscard]] std::string to_string(const Straggler& straggler);

/// JSON, as `kolo-diagnose top` reads it.
[[nodiscard]] std::string to_json(const JobPace& job);
/// Prometheus' text format.
[[nodiscard]] std::string to_metrics(const JobPace& job);

}  // namespace kolo::internal::diagnostics
