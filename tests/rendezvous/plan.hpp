// SPDX-License-Identifier: Apache-2.0
// A job and its faults, drawn from a seed.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "rendezvous/server/server.hpp"

namespace kolo::internal::rendezvous {

enum class FaultKind : std::uint8_t {
  kill,      // a process is killed
  stop,      // for a while
  fail,      // an exception
  quit,      // ends with status 0, but without leaving
  hang,      // does not come to the next meeting
  agent,     // ends, and its processes with it
  cut,       // a host has no connection for a while
  removal,   // announced removal of a host
  host,      // a new one
  stranger,  // somebody connects who has no part in the job
  twin,      // a second agent of a host, perhaps of another job
};
inline constexpr int fault_kinds = 11;

struct Fault {
  FaultKind kind{};
  Time at{};
  Time length{};
  std::uint64_t which = 0;
};

struct Plan {
  ServerOptions options{};
  std::vector<int> slots{};  // by host; the server is on the first
  std::uint64_t commits = 3;
  Time step{};
  Time delay{};          // longest of a message
  bool encodes = false;  // messages travel as bytes
  bool rejoins = false;  // a process that is closed out tries to come back
  std::vector<Fault> faults{};
  std::uint64_t seed = 0;
};

[[nodiscard]] Plan make_plan(std::uint64_t seed);
[[nodiscard]] std::string to_string(const Plan& plan);

}  // namespace kolo::internal::rendezvous
