// SPDX-License-Identifier: Apache-2.0
// The actions that the negotiator requests from its driver. Each action is requested once.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "base/failure.hpp"
#include "base/key.hpp"
#include "base/rank_set.hpp"

namespace kolo::internal::negotiation {

/// The negotiator has no clock: its driver passes the time.
using TimePoint = std::chrono::steady_clock::time_point;

/// The driver's identifier of an operation submitted on this rank.
using Ticket = std::uint64_t;

/// A message for the parent or a child.
struct Send {
  int peer;
  std::vector<std::byte> message;
};

/// Execute these operations as one batch, after all earlier batches have been started. `kind` is
/// the first operation's descriptor; the others differ from it only in their tensors.
struct Execute {
  std::uint64_t sequence;
  SetId set;
  RankSet members;  // all members of the set
  RankSet absent;   // members that take no part; never this rank
  Descriptor kind;
  std::vector<Ticket> tickets;
  std::uint64_t joins = 0;  // how often all ranks had joined before this batch
  std::uint64_t mark = 0;   // unique and ascending for the batches of plans; 0 for others
};

/// The operation of this ticket fails without being executed.
struct Fail {
  Ticket ticket;
  Failure failure;
};

/// The operation of this ticket is done. Its result is a number: the last rank that has joined, or
/// the id of a process set.
struct Answer {
  Ticket ticket;
  OperationType type;
  std::int64_t value;
};

struct Actions {
  std::vector<Send> sends;
  std::vector<Execute> executes;
  std::vector<Fail> fails;
  std::vector<Answer> answers;
  std::vector<std::string> reports;  // warnings for the log
  std::vector<SetId> removed{};      // process sets that no longer exist
  std::vector<Key> questions{};      // only the rank that reports for its host answers them
  // The next batch of the plan, if this rank is ready for it but others are not. The driver may
  // prepare it: either it is the next batch to be executed, or the plan ends before it.
  std::optional<Execute> upcoming{};

  [[nodiscard]] bool empty() const {
    return sends.empty() && executes.empty() && fails.empty() && answers.empty() &&
           reports.empty() && removed.empty() && questions.empty();
  }
};

}  // namespace kolo::internal::negotiation
