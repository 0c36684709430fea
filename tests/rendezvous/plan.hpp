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
  stop,      // a process stops for a while
  fail,      // a process throws
  quit,      // a process ends with status 0, but without leaving
  hang,      // a process does not come to the next meeting
  agent,     // an agent ends together with its processes
  cut,       // a host has no connection for a while
  removal,   // announced removal of a host
  host,      // a new host
  stranger,  // a connection from outside of the job
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
  Time delay{};          // maximum delay of a message
  bool encodes = false;  // messages are encoded as bytes
  bool rejoins = false;  // an excluded process tries to return
  std::vector<Fault> faults{};
  std::uint64_t seed = 0;
};

[[nodiscard]] Plan make_plan(std::uint64_t seed);
[[nodiscard]] std::string to_string(const Plan& plan);

}  // namespace kolo::internal::rendezvous
