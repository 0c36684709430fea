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
inline void drop_freed_slots(ReadinessReport& report, const ResponseCache& cache) {
  if (report.removals == cache.removals()) return;
  CacheSlotSet others;
  report.slots.for_each([&](CacheSlot slot) {
    if (!cache.was_freed_after(slot, report.removals)) others.insert(slot);
  });
  report.slots = std::move(others);
}

/// Removes joins and everything about operations of the world: a plan takes them over.
inline void withdraw_world(ReadinessReport& report, const ResponseCache& cache) {
  const auto of_world = [](const auto& one) { return one.key.set == world_set; };
  report.joins.clear();
  std::erase_if(report.ready, of_world);
  std::erase_if(report.lags, of_world);
  CacheSlotSet others;
  report.slots.for_each([&](CacheSlot slot) {
    if (!of_world(cache[slot])) others.insert(slot);
  });
  report.slots = std::move(others);
}

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
    drop_lags(complete.key);
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
  /// Adds a join and the operations that it has completed, in an order that the parent can count.
  /// The parent must count all earlier submissions of a rank before it counts the rank as joined,
  /// so readiness in full goes into an earlier report. The bit of a slot stands only for ranks that
  /// have not joined, so it goes into the same report as the join; the key cannot complete above
  /// without it.
  void add_join(int rank, std::vector<Completed> completed) {
    for (const Completed& one : completed) drop_lags(one.readiness.key);
    for (Completed& one : completed)
      if (!one.slot) current().ready.push_back(std::move(one.readiness));
    if (!current().slots.empty() || !current().ready.empty()) reports_.emplace_back();
    current().joins.push_back(rank);
    for (const Completed& one : completed)
      if (one.slot) current().slots.insert(*one.slot);
  }

  /// Removes the set from the cache, and its slots from the reports.
  void remove(SetId set, ResponseCache& cache) {
    // The reports were made before this removal, so slots that it frees are dropped from them.
    for (ReadinessReport& report : reports_) report.removals = cache.removals();
    cache.remove(set);
    for (ReadinessReport& report : reports_) drop_freed_slots(report, cache);
  }
  void withdraw(const ResponseCache& cache) {
    for (ReadinessReport& report : reports_) withdraw_world(report, cache);
  }

  /// Removes all reports and returns those that are not empty, marked with these numbers.
  [[nodiscard]] std::vector<ReadinessReport> take(std::uint64_t epoch, std::uint64_t removals) {
    std::vector<ReadinessReport> taken = std::exchange(reports_, {});
    std::erase_if(taken, [](const ReadinessReport& report) { return report.empty(); });
    for (ReadinessReport& report : taken) {
      report.epoch = epoch;
      report.removals = removals;
    }
    return taken;
  }

 private:
  /// A key that has completed is not late: the parent forgets it with its readiness.
  void drop_lags(const Key& key) {
    for (ReadinessReport& report : reports_)
      std::erase_if(report.lags, [&](const Lag& lag) { return lag.key == key; });
  }

  std::vector<ReadinessReport> reports_{};
};

}  // namespace kolo::internal::negotiation
