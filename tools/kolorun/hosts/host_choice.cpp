// SPDX-License-Identifier: Apache-2.0
#include "host_choice.hpp"

namespace kolorun {

std::vector<std::size_t> choose_hosts(std::span<const HostCandidate> hosts, int missing_slots,
                                      int fanout) {
  std::int64_t missing = missing_slots;
  int starting = 0;
  for (const HostCandidate& host : hosts) {
    if (host.state != HostState::starting && host.state != HostState::restarting) continue;
    missing -= host.slots;
    if (host.state == HostState::starting && !host.is_local) ++starting;
  }
  std::vector<std::size_t> chosen;
  for (std::size_t at = 0; at < hosts.size() && missing > 0; ++at) {
    const HostCandidate& host = hosts[at];
    if (host.state != HostState::spare) continue;
    // A host whose turn comes later keeps its slots for itself: the hosts after it are not needed.
    missing -= host.slots;
    if (!host.is_local && starting >= fanout) continue;
    if (!host.is_local) ++starting;
    chosen.push_back(at);
  }
  return chosen;
}

}  // namespace kolorun
