// SPDX-License-Identifier: Apache-2.0
// The job that a standby continues.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "rendezvous/server/generation.hpp"
#include "rendezvous/server/hosts.hpp"
#include "rendezvous/server/job_outcome.hpp"
#include "rendezvous/server/process_table.hpp"

namespace kolo::internal::rendezvous {

/// The standby's knowledge of the job once it has taken over.
struct Inheritance {
  struct Host {
    Link link;
    Hello hello;
    std::vector<Held> processes;
  };
  struct Adopted {
    ProcessId id;
    Link link;
    Hello hello;
    Standing standing;
  };
  std::vector<Host> hosts{};
  std::vector<Adopted> processes{};  // those that hosts have and that have said where they stand
  std::vector<std::pair<Link, Message>> messages{};  // that came meanwhile
  GenerationNumber generation = 0;                   // the newest one that a process knows
  std::vector<ProcessId> members{};                  // by rank, in that one

  /// Why no process has told of a session.
  [[nodiscard]] std::string why_nothing_goes_on() const;
};

/// Fills the parts of a new server. Members without a host or a connection are in the table, but
/// not lost yet.
void adopt(const Inheritance& all, ProcessTable& processes, Hosts& hosts, Generation& generation,
           JobOutcome& outcome, Time now);

}  // namespace kolo::internal::rendezvous
