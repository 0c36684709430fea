// SPDX-License-Identifier: Apache-2.0
// Counts of a rank's control messages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "program.hpp"

namespace kolo::internal::simulation {

struct Traffic {
  std::int64_t messages_sent = 0;
  std::int64_t messages_received = 0;
  std::int64_t bytes_sent = 0;
  std::int64_t bytes_received = 0;

  [[nodiscard]] std::int64_t messages() const { return messages_sent + messages_received; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_sent + bytes_received; }
};

/// Between two places where all ranks met.
struct Phase {
  Time begun{};
  Time submitted{};  // when the last submission of all was made
  Time ended{};      // when the last answer of all was there
  int hops = 0;      // the longest chain of messages, one sent after another was received
  std::uint64_t batches = 0;
  std::vector<Traffic> traffic{};  // by rank
};

}  // namespace kolo::internal::simulation
