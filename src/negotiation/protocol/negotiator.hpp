// SPDX-License-Identifier: Apache-2.0
// The protocol of one rank: events in, actions out. No threads, no clock, no input or output.
//
// Report events to it, then `take` the actions. Readiness that gathers between two calls of `take`
// travels in one message, and, at the root, may become one batch.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "negotiation/protocol/sequencer.hpp"
#include "negotiation/protocol/tally.hpp"
#include "negotiation/protocol/tree.hpp"
#include "negotiation/replay/planner.hpp"
#include "negotiation/replay/replay.hpp"
#include "negotiation/stall/explain_stall.hpp"
#include "negotiation/wire/actions.hpp"
#include "negotiation/wire/message.hpp"
#include "negotiation/wire/response_cache.hpp"

namespace kolo::internal::negotiation {

struct NegotiatorOptions {
  TreePosition place{};
  std::uint64_t session = 0;  // in every message; a message of another session is ignored
  std::int64_t fusion_threshold = 64 << 20;
  std::int64_t cache_capacity = 8192;
  std::chrono::nanoseconds stall_warning{};   // 0: never
  std::chrono::nanoseconds stall_shutdown{};  // 0: never
  TimePoint now{};                            // the time until the first `set_time` or `on_time`
  PlanBoard* board = nullptr;  // for plans: on all ranks or on none. With a board, all other ranks
                               // are children of the root
  bool plan_replay = true;     // the root may begin plans
};

/// Not thread-safe. Throws ProtocolError for a message that breaks the protocol, and cannot be used
/// afterwards.
class Negotiator {
 public:
  explicit Negotiator(const NegotiatorOptions& options);

  /// This rank submits an operation. Precondition: none is pending here under `key`, and this rank
  /// has not joined. A join has its own key. Submissions with the same `version` have the same key
  /// and, but for the step, the same descriptor; 0: unknown.
  void on_submit(Ticket ticket, const Key& key, const Descriptor& descriptor,
                 std::uint64_t version = 0);
  void on_message(int peer, std::span<const std::byte> bytes);
  /// The same for a decoded message of this session. `bytes` are passed on to the children.
  void on_message(int peer, MessageBody message, std::span<const std::byte> bytes);
  void on_time(TimePoint now);
  /// Sets the time without checking for late operations; cheaper than `on_time`.
  void set_time(TimePoint now) { now_ = now; }
  /// This rank has executed one more batch of the set.
  void on_done(SetId set);
  /// This rank leaves: it submits nothing more, but continues to pass on messages.
  void on_leave(const std::string& reason);

  /// The statuses of the ranks of this host, in answer to questions. Called on the rank that
  /// reports for its host.
  void on_answer(const std::vector<Key>& questions, std::vector<RankStatus> statuses);
  /// At the root: some ranks of its host have been blocked for a while. `host` lists all its ranks.
  void on_blocked(const std::vector<RankStatus>& host);

  [[nodiscard]] Actions take();

  /// True once all ranks have left: there is nothing more to pass on.
  [[nodiscard]] bool ended() const { return ended_; }
  /// True once this rank's departure is in the log, which every rank reads.
  [[nodiscard]] bool left() const { return left_; }
  /// True if an operation submitted here, or one this rank knows of, waits for an answer.
  [[nodiscard]] bool outstanding() const;
  /// The ranks that a plan cannot end without.
  [[nodiscard]] RankSet awaited_by_plan() const { return replay_.awaited(); }
  /// How many plans were begun, and how many batches they have run.
  [[nodiscard]] std::uint64_t plans() const { return replay_.epoch(); }
  [[nodiscard]] std::uint64_t replayed() const {
    return replayed_ + (replay_.live() ? replay_.ran() : 0);
  }
  /// True while a plan is followed.
  [[nodiscard]] bool in_plan() const { return replay_.live(); }
  /// The mark of the plan's next batch; 0 if no plan is followed.
  [[nodiscard]] std::uint64_t next_mark() const { return replay_.next_mark(); }
  /// True if only words on the board are awaited.
  [[nodiscard]] bool awaits_board() const { return replay_.awaits_others(); }
  /// `set_time` and `take` are due then, even if nothing has happened.
  [[nodiscard]] TimePoint deadline() const { return replay_.deadline(); }

 private:
  struct Own {
    Ticket ticket;
    std::uint64_t order;  // of submission
    Descriptor descriptor;
  };

  /// Why no operation of a set can complete any more: its first departure or stall in the log.
  using Cause = std::variant<Departure, StallEntry>;

  struct Set {
    RankSet members;
    Tally tally;  // of the members at or below this rank
    std::optional<Cause> broken{};
    int unfinished = 0;  // batches that this rank takes part in and has not executed yet
  };

  /// Why the root asked.
  enum class Purpose : std::uint8_t {
    warn,
    end,      // the session gives up: a stall breaks the set
    compare,  // ranks may wait for each other
  };

  /// The root's question about a key that is late.
  struct Inquiry {
    Key key;
    Purpose purpose;
    TimePoint asked;
  };

  void negotiate(Ticket ticket, const Key& key, const Descriptor& descriptor);
  void depart(const Departure& departure);

  // Plans.
  [[nodiscard]] bool may_plan() const { return options_.board != nullptr && options_.plan_replay; }
  void begin_plan_if_due();
  void withdraw_from(ReadinessReport& message) const;
  void follow_plan();
  void find_upcoming();
  void end_plan();

  // Readiness on its way up.
  [[nodiscard]] bool is_root() const { return place_.parent < 0; }
  Set* find(SetId set);
  Set* find_whole(SetId set);
  void on_log_update(const LogUpdate& update, std::span<const std::byte> bytes);
  void on_report(const Child& child, const ReadinessReport& message);
  void drop_freed_slots(ReadinessReport& message) const;
  void on_joined(int rank);
  void count(Set& set, std::optional<Readiness> complete);
  [[nodiscard]] std::optional<CacheSlot> slot_of(const Set& set, const Readiness& complete) const;
  void agree(Set& set, Readiness complete);
  ReadinessReport& outgoing_report();

  // Late operations.
  void report_late_operations();
  void inquire(const Key& key, Purpose purpose);
  void pass_status(RankStatus status);
  void conclude_inquiries();
  static void gather_late(std::vector<StalledGroup>& late, const Lag& lag, RankSet missing);
  void report_group(StalledGroup& late);
  void report_deadlocks();
  void give_up_overdue();
  void inquire_about_late_joins();
  [[nodiscard]] std::optional<Lag> lag_of(const Key& key);
  [[nodiscard]] std::optional<Lag> join_lag() const;

  // The log, as the root writes it.
  void sequence();
  void append_all_batches();
  void append(EntryBody body);
  void append_departure(const Departure& departure);
  void apply_log();

  // The log, as every rank reads it.
  void apply(const Entry& entry);
  void apply(const BatchEntry& batch, std::uint64_t sequence);
  void apply(const MismatchEntry& entry);
  void apply(const JoinEntry& entry);
  void apply(const AddSetEntry& entry);
  void apply(const RemoveSetEntry& entry);
  void apply(const Departure& departure);
  void apply(const StallEntry& entry);
  void apply(const InquiryEntry& entry);
  void apply(const EndEntry& entry);
  void apply(const PlanEntry& entry, std::uint64_t sequence);
  void add_set(SetId id, const RankSet& members);
  Ticket answered(const Key& key);
  void answer(const Key& key, std::int64_t value);
  void break_off(SetId id, Set& set, const Cause& cause);
  void fail_own(SetId set, const std::function<Failure(const Key&, OperationType)>& explain);
  [[nodiscard]] RankSet removed_members(SetId set) const {
    const auto removed = removed_.find(set);
    return removed == removed_.end() ? RankSet() : removed->second;
  }
  [[nodiscard]] Failure broken_failure(const Set& set, const Key& key, OperationType type) const;

  TreePosition place_;
  NegotiatorOptions options_;
  TimePoint now_;
  std::unordered_map<Key, Own, KeyHash> own_;  // submitted here, not answered yet
  std::map<SetId, Set> sets_;
  std::map<SetId, RankSet> removed_;
  SetId next_set_ = world_set + 1;
  std::vector<int> joined_;  // at or below this rank, in the order of their reports
  std::optional<Key> own_join_;
  bool excluded_after_join_ = false;  // the world broke while this rank had joined
  ResponseCache cache_;
  Sequencer sequencer_;                            // used by the root only
  std::vector<ReadinessReport> outgoing_reports_;  // for the parent, at the next take
  LogUpdate outgoing_update_;  // at the root: for the children, at the next take
  Actions actions_;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t next_order_ = 0;
  std::uint64_t joins_ = 0;  // that all ranks have completed
  Replay replay_;
  std::uint64_t replayed_ = 0;  // batches that all plans so far have run
  Planner planner_;             // used by the root only
  // Received while a plan was live; handled at its end.
  std::optional<Departure> own_departure_;
  std::vector<std::pair<int, ReadinessReport>> postponed_;  // by the child that sent it
  RankSet departed_{};                                      // known to the root only
  std::vector<Inquiry> inquiries_;
  Statuses statuses_{};           // at the root: the answers so far
  Blockade reported_deadlock_{};  // the last
  std::chrono::nanoseconds deadlock_probe_backoff_ = std::chrono::seconds(1);
  TimePoint next_deadlock_probe_{};
  // Of joins, at the root.
  TimePoint joined_since_{};
  TimePoint active_at_{};  // there was a batch
  TimePoint asked_about_joins_{};
  std::string reported_join_{};
  bool left_ = false;
  bool ended_ = false;
};

}  // namespace kolo::internal::negotiation
