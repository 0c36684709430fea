// SPDX-License-Identifier: Apache-2.0
// The protocol of one rank: events in, actions out. It has no threads, no clock, and no input or
// output.
//
// Report events, then `take` the actions. Readiness that gathers between two calls of `take`
// travels in one message and, at the root, may become one batch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/settings.hpp"
#include "negotiation/protocol/outgoing_reports.hpp"
#include "negotiation/protocol/own_operations.hpp"
#include "negotiation/protocol/sequencer.hpp"
#include "negotiation/protocol/set_table.hpp"
#include "negotiation/protocol/stall_inspector.hpp"
#include "negotiation/protocol/tree.hpp"
#include "negotiation/replay/planner.hpp"
#include "negotiation/replay/replay.hpp"
#include "negotiation/wire/actions.hpp"
#include "negotiation/wire/message.hpp"
#include "negotiation/wire/response_cache.hpp"

namespace kolo::internal::negotiation {

struct NegotiatorOptions {
  TreePosition place{};
  std::uint64_t session = 0;   // in every message; messages of other sessions are ignored
  TimePoint now{};             // the time until the first `set_time` or `on_time`
  PlanBoard* board = nullptr;  // for plans: on all ranks or on none. With a board, all other ranks
                               // are children of the root
};

/// Not thread-safe. Throws ProtocolError for a message that breaks the protocol, and cannot be used
/// afterwards.
class Negotiator {
 public:
  /// `settings` outlives this.
  Negotiator(const Settings& settings, const NegotiatorOptions& options);
  Negotiator(const Negotiator&) = delete;
  Negotiator& operator=(const Negotiator&) = delete;

  /// This rank submits an operation. Precondition: none is pending here under `key`, and this rank
  /// has not joined. A join has its own key. Submissions with the same `version` have the same key
  /// and, but for the step, the same descriptor; 0: unknown.
  void on_submit(Ticket ticket, const Key& key, const Descriptor& descriptor,
                 std::uint64_t version = 0);
  void on_message(int peer, std::span<const std::byte> bytes);
  /// The same for a decoded message of this session. The children get the same `bytes`.
  void on_message(int peer, MessageBody message, std::span<const std::byte> bytes);
  void on_time(TimePoint now);
  /// Sets the time without checking for late operations; cheaper than `on_time`.
  void set_time(TimePoint now) { now_ = now; }
  /// This rank has executed one more batch of the set.
  void on_done(SetId set);
  /// This rank leaves: it submits nothing more, but continues to pass on messages.
  void on_leave(const std::string& reason);

  /// The answer to questions: the statuses of the ranks of this host. Called on the rank that
  /// reports for its host.
  void on_answer(const std::vector<Key>& questions, std::vector<RankStatus> statuses);
  /// At the root: some ranks of its host have been blocked for a while. `host` lists all ranks of
  /// the host.
  void on_blocked(const std::vector<RankStatus>& host);

  [[nodiscard]] Actions take();

  /// True once all ranks have left. There is nothing more to pass on.
  [[nodiscard]] bool ended() const { return ended_; }
  /// True once this rank's departure is in the log, which every rank reads.
  [[nodiscard]] bool left() const { return left_; }
  /// True if an operation submitted here, or one this rank knows of, waits for an answer.
  [[nodiscard]] bool outstanding() const;
  /// The ranks that a plan cannot end without.
  [[nodiscard]] RankSet awaited_by_plan() const { return replay_.awaited(); }
  /// The number of plans that were begun, and the number of batches that they have run.
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
  [[nodiscard]] bool is_root() const { return place_.parent < 0; }

  // Readiness on its way up.
  void negotiate(Ticket ticket, const Key& key, const Descriptor& descriptor);
  void depart(const Departure& departure);
  void on_log_update(const LogUpdate& update, std::span<const std::byte> bytes);
  void on_report(const Child& child, const ReadinessReport& message);
  void on_joined(int rank);
  void count(const NegotiatedSet& set, std::optional<Readiness> complete);
  [[nodiscard]] std::optional<CacheSlot> slot_of(const NegotiatedSet& set,
                                                 const Readiness& complete) const;
  void agree(const NegotiatedSet& set, Readiness complete);
  void pass_status(RankStatus status);
  void report_late_operations();

  // Plans.
  void begin_plan_if_due();
  void follow_plan();
  void find_upcoming();
  void end_plan();

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
  void answer(const Key& key, std::int64_t value);
  void break_off(SetId id, NegotiatedSet& set, const BreakCause& cause);
  void fail_own(SetId set, const std::function<Failure(const Key&, OperationType)>& explain);
  [[nodiscard]] Failure broken_failure(const NegotiatedSet& set, const Key& key,
                                       OperationType type) const;

  const Settings& settings_;
  TreePosition place_;
  std::uint64_t session_;
  bool may_plan_;
  TimePoint now_;
  OwnOperations own_{};
  SetTable sets_;
  std::optional<Key> own_join_{};
  bool excluded_after_join_ = false;  // the world broke while this rank had joined
  ResponseCache cache_{};
  OutgoingReports reports_{};  // for the parent, at the next take
  Actions actions_{};
  std::uint64_t next_sequence_ = 0;
  std::uint64_t joins_ = 0;  // how often all ranks have joined
  bool left_ = false;
  bool ended_ = false;

  Replay replay_;
  std::uint64_t replayed_ = 0;  // batches that all plans so far have run
  // Received while a plan was live; handled at its end.
  std::optional<Departure> own_departure_{};
  std::vector<std::pair<int, ReadinessReport>> postponed_{};  // each with the child that sent it

  // Used by the root only.
  Sequencer sequencer_;
  Planner planner_{};
  LogUpdate outgoing_update_{};  // for the children, at the next take
  RankSet departed_{};
  StallInspector stalls_;
};

}  // namespace kolo::internal::negotiation
