// SPDX-License-Identifier: Apache-2.0
#include "negotiation/protocol/outgoing_reports.hpp"

namespace kolo::internal::negotiation {

void drop_freed_slots(ReadinessReport& report, const ResponseCache& cache) {
  if (report.removals == cache.removals()) return;
  CacheSlotSet others;
  report.slots.for_each([&](CacheSlot slot) {
    if (!cache.was_freed_after(slot, report.removals)) others.insert(slot);
  });
  report.slots = std::move(others);
}

void withdraw_world(ReadinessReport& report, const ResponseCache& cache) {
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

/// Adds a join and the operations that it has completed, in an order that the parent can count. The
/// parent must count all earlier submissions of a rank before it counts the rank as joined, so
/// readiness in full goes into an earlier report. The bit of a slot stands only for ranks that have
/// not joined, so it goes into the same report as the join; the key cannot complete above without
/// it.
void OutgoingReports::add_join(int rank, std::vector<Completed> completed) {
  for (Completed& one : completed)
    if (!one.slot) current().ready.push_back(std::move(one.readiness));
  if (!current().slots.empty() || !current().ready.empty()) reports_.emplace_back();
  current().joins.push_back(rank);
  for (const Completed& one : completed)
    if (one.slot) current().slots.insert(*one.slot);
}

void OutgoingReports::remove(SetId set, ResponseCache& cache) {
  // The reports were made before this removal, so slots that it frees are dropped from them.
  for (ReadinessReport& report : reports_) report.removals = cache.removals();
  cache.remove(set);
  for (ReadinessReport& report : reports_) drop_freed_slots(report, cache);
}

std::vector<ReadinessReport> OutgoingReports::take(std::uint64_t epoch, std::uint64_t removals) {
  std::vector<ReadinessReport> taken = std::exchange(reports_, {});
  std::erase_if(taken, [](const ReadinessReport& report) { return report.empty(); });
  for (ReadinessReport& report : taken) {
    report.epoch = epoch;
    report.removals = removals;
  }
  return taken;
}

}  // namespace kolo::internal::negotiation
