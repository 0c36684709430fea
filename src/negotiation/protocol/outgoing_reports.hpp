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

/// Removes slots that were freed after the report was made: they stood for keys of a removed set,
/// and may belong to other keys by now.
void drop_freed_slots(ReadinessReport& report, const ResponseCache& cache);

/// Removes joins and everything about operations of the world: a plan takes them over.
void withdraw_world(ReadinessReport& report, const ResponseCache& cache);

class OutgoingReports {
 public:
  /// The report that gathers now.
  ReadinessReport& current() {
    if (reports_.empty()) reports_.emplace_back();
    return reports_.back();
  }

  /// An operation that is complete below. With a slot, its bit says the same.
  void add(Readiness complete, std::optional<CacheSlot> slot) {
    if (slot) {
      current().slots.insert(*slot);
    } else {
      current().ready.push_back(std::move(complete));
    }
  }

  /// A rank has joined, and this has completed operations.
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

  /// All reports that say something, with these numbers.
  [[nodiscard]] std::vector<ReadinessReport> take(std::uint64_t epoch, std::uint64_t removals);

 private:
  std::vector<ReadinessReport> reports_{};
};

}  // namespace kolo::internal::negotiation
