// SPDX-License-Identifier: Apache-2.0
// The operations of one rank, from its timeline or its flight record.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace diagnose {

struct RunOperation {
  std::string name{};
  std::int64_t set = 0;
  std::int64_t batch = -1;  // in which it was executed; -1: in none
  bool is_open = false;     // it has failed, or was pending at the end
  // In nanoseconds, on the clock of the rank's host:
  std::int64_t begin = 0;   // the rank submits it
  std::int64_t agreed = 0;  // all ranks have submitted it
  std::int64_t end = 0;
};

struct RankRun {
  std::string file{};
  int rank = 0;
  std::string host{};                      // "": unknown
  std::vector<RunOperation> operations{};  // by begin
  std::int64_t dropped = 0;                // spans that the timeline lacks
};

/// Reads a timeline or a flight record. Throws ReadError.
[[nodiscard]] RankRun read_run(const std::string& path);

}  // namespace diagnose
