// SPDX-License-Identifier: Apache-2.0
// The readiness reports that a rank gathers for its parent.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "negotiation/wire/message.hpp"
#include "negotiation/wire/response_cache.hpp"

namespace kolo::internal::negotiation {

/// Removes slots that were freed after the report was made. They stood for keys of a removed set,
/// and may belong to other keys by now.
void drop_freed_slots(ReadinessReport& report, const ResponseCache& cache);

/// Removes joins and everything about operations of the world: a plan takes them over.
void withdraw_world(ReadinessReport& report, const ResponseCache& cache);

/// Usually a single report. A join may need a second one, since the parent handles the joins of a
/// report before its operations.
class OutgoingReports {
 public:
  /// The report to which content is added.
  ReadinessReport& current() {
    if (reports_.empty()) reports_.emplace_back();
    return reports_.back();
  }

  /// Adds an operation that all expected ranks at or below this one have submitted. With a slot, a
  /// single bit is sent instead of the readiness.
  void add(Readiness complete, std::optional<CacheSlot> slot) {
    if (slot) {
      current().slots.insert(*slot);
    } else {
      current().ready.push_back(std::move(complete));
    }
  }

  /// An operation that a join has completed.
  struct Completed {
    Readiness readiness;
    std::optional<CacheSlot> slot;
  };
  void add_join(int rank, std::vector<Completed> completed);

  /// Removes the set from the cache, and its slots from the reports.
  void remove(SetId set, ResponseCache& cache);
  void withdraw(const ResponseCache& cache) {
    for (ReadinessReport& report : reports_) withdraw_world(report, cache);
  }

  /// Removes all reports and returns those that are not empty, marked with these numbers.
  [[nodiscard]] std::vector<ReadinessReport> take(std::uint64_t epoch, std::uint64_t removals);

 private:
  std::vector<ReadinessReport> reports_{};
};

}  // namespace kolo::internal::negotiation
