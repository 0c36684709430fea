// What the state machine asks of its driver. Each action is asked for once.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "base/failure.hpp"
#include "base/key.hpp"
#include "base/rank_set.hpp"

namespace kolo::internal::negotiation {

/// The state machine has no clock: its driver tells it the time.
using TimePoint = std::chrono::steady_clock::time_point;

/// The driver's number for an operation submitted on this rank.
using Ticket = std::uint64_t;

/// Bytes for a neighbor in the tree.
struct Send {
  int peer;
  std::vector<std::byte> message;
};

/// Execute these operations as one batch, after all earlier batches have been started. `kind` is
/// the first's descriptor; the others differ from it in their tensors only.
struct Execute {
  std::uint64_t sequence;
  SetId set;
  RankSet members;  // of the set
  RankSet absent;   // those of them that take no part; this rank is none
  Descriptor kind;
  std::vector<Ticket> tickets;
};

/// The operation of this ticket is answered: it will not be executed.
struct Fail {
  Ticket ticket;
  Failure failure;
};

/// The operation of this ticket is answered by a number: the last rank to join, or a process set.
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
  std::vector<Key> questions{};      // who speaks for its host is to say what its ranks do

  [[nodiscard]] bool empty() const {
    return sends.empty() && executes.empty() && fails.empty() && answers.empty() &&
           reports.empty() && questions.empty();
  }
};

}  // namespace kolo::internal::negotiation
