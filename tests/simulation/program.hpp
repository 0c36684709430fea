// SPDX-License-Identifier: Apache-2.0
// A run's program: the actions of the ranks, their times and machines. It is plain data, so that a
// failing program can be reduced and printed.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/descriptor.hpp"

namespace kolo::internal::simulation {

using Time = std::chrono::nanoseconds;

/// An operation that ranks submit.
struct Operation {
  std::string name{};  // empty: without a name
  int set = 0;         // the world, or the index of one of `Program::sets` plus 1
  Descriptor descriptor{};
};

struct Act {
  enum class Kind : std::uint8_t {
    compute,  // for `time`
    submit,   // operation `what`, after an earlier one under its key is answered
    insist,   // the same, but it is refused if an earlier one is pending
    wait,     // until all submissions are answered
    meet,     // until all ranks meet: costs are counted from here
    leave,
    die,
  };
  Kind kind = Kind::compute;
  int what = 0;
  Time time{};
  int group = 0;  // number of a group of acts of several ranks
};

using Script = std::vector<Act>;

struct Settings {
  std::uint64_t seed = 0;
  std::vector<int> node_of{};
  int arity = 8;
  std::int64_t fusion_threshold = 64 << 20;
  std::int64_t cache_capacity = 8192;
  bool board = false;  // ranks follow plans; all ranks are on one host
  Time stall_warning{};
  Time stall_shutdown{};
  // A message takes the latency plus the time of its bytes, randomly lengthened by up to `jitter`
  // times that; sender and receiver are busy for `cost_of_message` with each message.
  Time latency_in_host{1000};
  Time latency_between_hosts{5000};
  double bytes_per_ns = 10;
  double jitter = 0;
  Time cost_of_message{};
  Time wake{};  // maximum time from an event to the rank's turn
  // A batch takes this after all its ranks have started it.
  Time data_latency{};
  double data_bytes_per_ns = 10;
  double compute_jitter = 0;  // maximum random lengthening of computing, as a factor
};

/// A process is stopped: it runs, reads and sends nothing.
struct Pause {
  static constexpr int all = -1;
  int rank = all;
  Time at{};  // since the start
  Time length{};
};

struct Program {
  Settings settings{};
  std::vector<Operation> operations{};
  std::vector<RankSet> sets{};
  std::vector<Script> scripts{};  // one for each rank, or one for all
  std::vector<Pause> pauses{};

  [[nodiscard]] int ranks() const { return static_cast<int>(settings.node_of.size()); }
  [[nodiscard]] const Script& script_of(int rank) const {
    return scripts[static_cast<std::size_t>(rank) % scripts.size()];
  }
  [[nodiscard]] bool stalls_end() const { return settings.stall_shutdown.count() > 0; }
};

/// Describes the program.
[[nodiscard]] std::string to_string(const Program& program);

}  // namespace kolo::internal::simulation
