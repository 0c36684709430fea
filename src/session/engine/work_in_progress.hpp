// SPDX-License-Identifier: Apache-2.0
// The unfinished operations that the driver has taken from the queue.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "base/dtype.hpp"
#include "negotiation/stall/explain.hpp"
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

/// The batch in words: `batch 7 (allreduce "x" and 3 more, 4.0 MiB)`.
[[nodiscard]] inline std::string describe(const RunningBatch& batch) {
  const detail::Operation& first = *batch.operations.front();
  double bytes = 0.0;
  for (const detail::Operation* operation : batch.operations)
    for (const backend::BatchTensor& member : operation->members())
      bytes += static_cast<double>(member.elements()) * static_cast<double>(size_of(member.dtype));
  const std::size_t others = batch.operations.size() - 1;
  return fmt::format("batch {} ({}{}{})", batch.sequence,
                     negotiation::operation_in_words(first.descriptor().type, first.key()),
                     others == 0 ? "" : fmt::format(" and {} more", others),
                     bytes > 0.0 ? ", " + diagnostics::in_bytes(bytes) : "");
}

/// The operations in negotiation and the running batches: an operation is negotiated under a
/// ticket, then runs in a batch. Only the driver may call it.
class WorkInProgress {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Negotiating {
    detail::Operation* operation;  // null where the ticket is free
    TimePoint since;
  };

  /// Adds an operation to be negotiated. Tickets are reused, so that a steady stream of operations
  /// allocates nothing.
  negotiation::Ticket add(detail::Operation* operation, TimePoint now) {
    if (free_tickets_.empty()) {
      negotiating_.push_back({operation, now});
      return negotiating_.size() - 1;
    }
    const negotiation::Ticket ticket = free_tickets_.back();
    free_tickets_.pop_back();
    negotiating_[ticket] = {operation, now};
    return ticket;
  }
  [[nodiscard]] detail::Operation* operator[](negotiation::Ticket ticket) const {
    return negotiating_[ticket].operation;
  }
  detail::Operation* take(negotiation::Ticket ticket) {
    free_tickets_.push_back(ticket);
    return std::exchange(negotiating_[ticket].operation, nullptr);
  }
  /// The operations in negotiation, indexed by ticket.
  [[nodiscard]] const std::vector<Negotiating>& negotiating() const { return negotiating_; }
  [[nodiscard]] std::vector<Negotiating> take_all() {
    free_tickets_.clear();
    return std::exchange(negotiating_, {});
  }

  /// The running batches, in order of sequence numbers.
  [[nodiscard]] std::deque<RunningBatch>& running() { return running_; }
  [[nodiscard]] const std::deque<RunningBatch>& running() const { return running_; }

  /// The operation in which this rank is: one that runs, or else the one that waits for the longest
  /// time to be negotiated. Null if there is none.
  [[nodiscard]] const detail::Operation* oldest() const {
    const Negotiating* first = nullptr;
    for (const Negotiating& each : negotiating_)
      if (each.operation != nullptr && (first == nullptr || each.since < first->since))
        first = &each;
    if (!running_.empty()) return running_.front().operations.front();
    return first == nullptr ? nullptr : first->operation;
  }
  /// All operations, as flight records list them.
  [[nodiscard]] diagnostics::Recorder::Pending pending() const {
    diagnostics::Recorder::Pending all;
    for (const auto& [operation, since] : negotiating_)
      if (operation != nullptr) all.push_back({operation->tag(), &operation->descriptor()});
    for (const RunningBatch& batch : running_)
      for (const detail::Operation* operation : batch.operations)
        all.push_back({operation->tag(), &operation->descriptor(), true, batch.sequence});
    return all;
  }

 private:
  std::vector<Negotiating> negotiating_{};
  std::vector<negotiation::Ticket> free_tickets_{};
  std::deque<RunningBatch> running_{};
};

}  // namespace kolo::internal::session
