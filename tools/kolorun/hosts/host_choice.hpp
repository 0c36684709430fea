// SPDX-License-Identifier: Apache-2.0
// The choice of the hosts on which to start agents next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kolorun {

enum class HostState : std::uint8_t {
  spare,       // has no agent, and may get one
  starting,    // its agent has not connected yet
  restarting,  // its agent ends, to start again with another number of slots
  other,       // its agent is connected, or it cannot have one now
};

struct HostCandidate {
  HostState state = HostState::spare;
  int slots = 1;
  bool is_local = false;  // no remote shell starts its agent
};

/// The indices of the spare hosts on which agents should start now: the first ones whose slots the
/// job needs. `missing_slots`: slots that the job lacks, apart from those of hosts that are
/// starting. `fanout`: how many remote shells may be starting agents at the same time.
[[nodiscard]] std::vector<std::size_t> choose_hosts(std::span<const HostCandidate> hosts,
                                                    int missing_slots, int fanout);

}  // namespace kolorun
