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

/// The traffic between two meetings of all ranks.
struct Phase {
  Time begun{};
  Time submitted{};  // time of the last submission of any rank
  Time ended{};      // time of the last answer to any rank
  int hops = 0;      // longest chain of messages, each sent after the previous one was received
  std::uint64_t batches = 0;
  std::vector<Traffic> traffic{};  // by rank
};

}  // namespace kolo::internal::simulation
