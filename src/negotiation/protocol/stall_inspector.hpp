// SPDX-License-Identifier: Apache-2.0
// Detects late operations and deadlocks. Used by the root only.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/settings.hpp"
#include "negotiation/protocol/set_table.hpp"
#include "negotiation/stall/explain.hpp"

namespace kolo::internal::negotiation {

/// The root asks about a late key with an entry in the log. One rank per host answers with the
/// statuses of the host's ranks. Half a second later, the root reports the key, or breaks its
/// process set if the key has waited for longer than the session allows.
class StallInspector {
 public:
  /// Appends an entry to the log and applies it. Appends agreed batches before a StallEntry.
  using Append = std::function<void(EntryBody)>;

  /// `settings` and `sets` outlive this object. `ranks`: the size of the world.
  StallInspector(const Settings& settings, int ranks, SetTable& sets, Append append)
      : settings_(settings), ranks_(ranks), sets_(sets), append_(std::move(append)) {}

  /// Concludes inquiries that are old enough, and begins new ones.
  void on_time(TimePoint now);
  void on_batch(TimePoint now) { active_at_ = now; }
  /// A rank has joined while no other rank counts as joined.
  void on_first_join(TimePoint now);
  void add_status(RankStatus status) { statuses_[status.rank] = std::move(status); }
  /// Some ranks of the root's host have been blocked for a while. `host`: all ranks of the host.
  void on_blocked(const std::vector<RankStatus>& host, TimePoint now);

  /// The answers of all hosts that answer, about the ranks' batches; null for half a second, until
  /// they are here. `key`: an operation of the batch.
  [[nodiscard]] const Statuses* ask_about_batch(const Key& key, TimePoint now);

  [[nodiscard]] bool is_inquiring() const { return !inquiries_.empty(); }
  [[nodiscard]] std::vector<std::string> take_reports() { return std::exchange(reports_, {}); }

 private:
  enum class Purpose : std::uint8_t {
    warn,
    end,      // the operation has waited too long: a stall breaks the set
    compare,  // ranks of several hosts may wait for each other: collect all statuses
    batch,    // a batch has not moved for too long: collect all statuses
  };
  struct Inquiry {
    Key key;
    Purpose purpose;
    TimePoint asked;
  };

  void inquire(const Key& key, Purpose purpose);
  void inquire_about_late_operations();
  void inquire_about_overdue_operations();
  void inquire_about_late_joins();
  void conclude_inquiries();
  [[nodiscard]] std::optional<Lag> lag_of(const Key& key);
  [[nodiscard]] std::optional<Lag> join_lag() const;
  static void gather_late(std::vector<StalledGroup>& late, const Lag& lag, RankSet missing);
  void report_groups(std::vector<StalledGroup> late);
  void report_group(StalledGroup& late);
  void report_deadlocks();

  const Settings& settings_;
  int ranks_;
  SetTable& sets_;
  Append append_;
  TimePoint now_{};
  std::vector<std::string> reports_{};
  std::vector<Inquiry> inquiries_{};
  Statuses statuses_{};  // the answers so far
  Statuses about_batch_{};
  TimePoint answered_at_{};  // the time of the answers about a batch
  Blockade last_reported_blockade_{};
  std::chrono::nanoseconds deadlock_probe_backoff_ = std::chrono::seconds(1);
  TimePoint next_deadlock_probe_{};
  TimePoint joined_since_{};
  TimePoint active_at_{};  // the time of the last batch
  TimePoint asked_about_joins_{};
  std::string last_join_report_{};
};

}  // namespace kolo::internal::negotiation
