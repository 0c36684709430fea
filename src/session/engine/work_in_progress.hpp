// SPDX-License-Identifier: Apache-2.0
// The operations that the driver has taken from the queue and that are not done.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "negotiation/wire/actions.hpp"
#include "session/engine/operation.hpp"

namespace kolo::internal::session {

struct RunningBatch {
  std::unique_ptr<backend::Execution> execution;  // null while the batch is held back
  std::vector<detail::Operation*> operations;
  SetId set;
  std::uint64_t sequence;
  std::chrono::steady_clock::time_point moved_at;
  std::unique_ptr<backend::Batch> held_back{};
};

/// `batch 7 (allreduce "x" and 3 more, 4.0 MiB)`.
[[nodiscard]] std::string describe(const RunningBatch& batch);

/// Used by the driver only. An operation is negotiated under a ticket, then runs in a batch.
class WorkInProgress {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Negotiating {
    detail::Operation* operation;  // null where the ticket is free
    TimePoint since;
  };

  /// Tickets are reused, so that a steady stream of operations allocates nothing.
  negotiation::Ticket add(detail::Operation* operation, TimePoint now);
  [[nodiscard]] detail::Operation* operator[](negotiation::Ticket ticket) const {
    return negotiating_[ticket].operation;
  }
  detail::Operation* take(negotiation::Ticket ticket) {
    free_tickets_.push_back(ticket);
    return std::exchange(negotiating_[ticket].operation, nullptr);
  }
  /// By ticket.
  [[nodiscard]] const std::vector<Negotiating>& negotiating() const { return negotiating_; }
  [[nodiscard]] std::vector<Negotiating> take_all() {
    free_tickets_.clear();
    return std::exchange(negotiating_, {});
  }

  /// By sequence number.
  [[nodiscard]] std::deque<RunningBatch>& running() { return running_; }
  [[nodiscard]] const std::deque<RunningBatch>& running() const { return running_; }

  /// All operations, for records.
  [[nodiscard]] diagnostics::Recorder::Pending pending() const;

 private:
  std::vector<Negotiating> negotiating_{};
  std::vector<negotiation::Ticket> free_tickets_{};
  std::deque<RunningBatch> running_{};
};

}  // namespace kolo::internal::session
