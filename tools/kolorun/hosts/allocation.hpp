// SPDX-License-Identifier: Apache-2.0
// The hosts that a batch system has given to this job, from its environment variables: Slurm, PBS
// or LSF.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hosts.hpp"

namespace kolorun {

struct Allocation {
  std::string name{};              // for messages, such as "Slurm's job 4711"
  std::string request{};           // how to ask for more slots, for messages
  std::vector<Host> hosts{};       // this host has the name that it gives itself
  std::vector<std::string> rsh{};  // starts a command on a host; empty: ssh
};

/// The allocation in which this process runs; none outside of a batch job, and in a step of srun
/// with one task, which is for one host. Throws UsageError if srun starts several kolorun, and for
/// an allocation that cannot be used.
[[nodiscard]] std::optional<Allocation> find_allocation();

}  // namespace kolorun
