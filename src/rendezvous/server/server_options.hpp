// SPDX-License-Identifier: Apache-2.0
// The options of a job's rendezvous server.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "rendezvous/message.hpp"

namespace kolo::internal::rendezvous {

/// The time since the server started.
using Time = std::chrono::nanoseconds;

struct ServerOptions {
  Secret secret{};
  std::string version{};   // Kolo's version; the server refuses others
  std::string job{};       // the job that agents must name
  int np = 1;              // number of ranks in the first generation
  int min_np = 1;          // the job does not continue with fewer ranks
  int max_np = 1;          // the server does not start more ranks
  bool elastic = false;    // false: one lost process ends the job, and min_np and max_np equal np
  bool has_agents = true;  // false: np processes connect by themselves, each with a wanted rank
  Time hello_timeout = std::chrono::seconds(5);
  Time start_timeout = std::chrono::seconds(600);       // from the start to the first generation
  Time elastic_timeout = std::chrono::seconds(600);     // from a loss to the next generation
  Time collective_timeout = std::chrono::seconds(600);  // from a call's first rank to its last
  Time lease = std::chrono::seconds(10);        // an agent that is silent for this long is lost
  Time growth_delay = std::chrono::seconds(1);  // newcomers within this time join together
  Time min_cooldown = std::chrono::seconds(10);
  Time max_cooldown = std::chrono::seconds(600);
  int reset_limit = -1;             // losses after which the job fails; negative: no limit
  std::size_t max_strangers = 256;  // unproved connections, in addition to those of max_np ranks
};

}  // namespace kolo::internal::rendezvous
