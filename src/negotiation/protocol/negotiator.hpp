// SPDX-License-Identifier: Apache-2.0
// The negotiation protocol of one rank: a state machine that turns events into actions. It has no
// threads, no clock, and no input or output, so that a simulation can run it in any schedule.
//
// The driver reports events and then takes the actions. Readiness that gathers between two calls of
// `take` travels in one message and, at the root, may become one batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/settings.hpp"
#include "negotiation/protocol/outgoing_reports.hpp"
#include "negotiation/protocol/sequencer.hpp"
#include "negotiation/protocol/set_table.hpp"
#include "negotiation/protocol/stall_inspector.hpp"
#include "negotiation/protocol/tree.hpp"
#include "negotiation/replay/planner.hpp"
#include "negotiation/replay/replay.hpp"
#include "negotiation/wire/actions.hpp"
#include "negotiation/wire/codec.hpp"
#include "negotiation/wire/message.hpp"
#include "negotiation/wire/response_cache.hpp"

namespace kolo::internal::negotiation {

/// The operations that this rank has submitted to negotiation and that are not answered yet.
class OwnOperations {
 public:
  void add(Ticket ticket, const Key& key, const Descriptor& descriptor) {
    operations_.emplace(key, Operation{ticket, next_order_++, descriptor});
  }

  [[nodiscard]] bool empty() const { return operations_.empty(); }
  [[nodiscard]] bool contains(const Key& key) const { return operations_.contains(key); }

  struct Taken {
    Ticket ticket;
    OperationType type;
  };
  /// Removes an operation that is answered. Throws ProtocolError if this rank did not submit it.
  Taken take(const Key& key) {
    const auto found = operations_.find(key);
    if (found == operations_.end())
      throw ProtocolError(to_string(key) + " was answered, but this rank did not submit it");
    const Taken taken{found->second.ticket, found->second.descriptor.type};
    operations_.erase(found);
    return taken;
  }

  /// Removes all operations of a set and returns them in the order of submission.
  [[nodiscard]] std::vector<Withdrawn> take_all(SetId set) {
    std::vector<Withdrawn> taken;
    for (auto one = operations_.begin(); one != operations_.end();) {
      auto& [key, operation] = *one;
      if (key.set != set) {
        ++one;
        continue;
      }
      taken.push_back({operation.order, operation.ticket, key, std::move(operation.descriptor)});
      one = operations_.erase(one);
    }
    std::ranges::sort(taken, {}, &Withdrawn::order);
    return taken;
  }

 private:
  struct Operation {
    Ticket ticket;
    std::uint64_t order;  // number of earlier submissions
    Descriptor descriptor;
  };

  std::unordered_map<Key, Operation, KeyHash> operations_{};
  std::uint64_t next_order_ = 0;
};

struct NegotiatorOptions {
  TreePosition place{};
  std::uint64_t session = 0;   // sent in every message; messages of other sessions are ignored
  TimePoint now{};             // the time until the first `set_time` or `on_time`
  PlanBoard* board = nullptr;  // null: no plans. Either all ranks have a board or none has. With a
                               // board, all other ranks are children of the root
};

/// The state machine of one rank. Not thread-safe. A message that breaks the protocol makes a call
/// throw ProtocolError; the object cannot be used afterwards.
class Negotiator {
 public:
  /// `settings` outlives this object.
  Negotiator(const Settings& settings, const NegotiatorOptions& options);
  Negotiator(const Negotiator&) = delete;
  Negotiator& operator=(const Negotiator&) = delete;

  /// This rank submits an operation. Precondition: no operation with this `key` is pending here,
  /// and this rank has not joined. A join has its own key. Submissions with the same `version` have
  /// the same key and, apart from the step, the same descriptor, so that comparing versions
  /// replaces comparing descriptors. 0: no version is known.
  void on_submit(Ticket ticket, const Key& key, const Descriptor& descriptor,
                 std::uint64_t version = 0);
  void on_message(int peer, std::span<const std::byte> bytes);
  /// Handles a decoded message of this session. Log updates are forwarded to the children as
  /// `bytes`.
  void on_message(int peer, MessageBody message, std::span<const std::byte> bytes);
  void on_time(TimePoint now);
  /// Sets the time without checking for late operations; cheaper than `on_time`.
  void set_time(TimePoint now) { now_ = now; }
  /// This rank has executed a batch of the set.
  void on_done(SetId set);
  /// This rank leaves. It submits nothing more, but continues to execute batches and to forward
  /// messages until `ended`.
  void on_leave(const std::string& reason);

  /// Answers questions with the statuses of the ranks of this host. Called on the rank that reports
  /// for its host.
  void on_answer(const std::vector<Key>& questions, std::vector<RankStatus> statuses);
  /// At the root: some ranks of its host have been blocked for a while. `host` lists all ranks of
  /// the host.
  void on_blocked(const std::vector<RankStatus>& host);

  /// At the root: see StallInspector.
  [[nodiscard]] const Statuses* ask_about_batch(const Key& key) {
    return stalls_.ask_about_batch(key, now_);
  }

  [[nodiscard]] Actions take();

  /// True once all ranks have left and have executed all their batches: no rank needs another.
  [[nodiscard]] bool ended() const { return ended_; }
  /// True once this rank's departure is in the log, so that every rank learns of it.
  [[nodiscard]] bool left() const { return left_; }
  /// True if an operation that this rank has submitted or knows of waits for an answer.
  [[nodiscard]] bool outstanding() const;
  /// The keys that some rank at or below this one has submitted, and others have not.
  [[nodiscard]] std::vector<Key> pending() const { return sets_.pending(); }
  /// The ranks that keep the plan from ending because they have not stopped yet.
  [[nodiscard]] RankSet awaited_by_plan() const { return replay_.awaited(); }
  /// The number of plans so far, and the number of batches that they have run.
  [[nodiscard]] std::uint64_t plans() const { return replay_.epoch(); }
  [[nodiscard]] std::uint64_t replayed() const {
    return replayed_ + (replay_.live() ? replay_.ran() : 0);
  }
  /// True while this rank follows a plan.
  [[nodiscard]] bool in_plan() const { return replay_.live(); }
  /// The mark of the plan's next batch; 0 outside plans.
  [[nodiscard]] std::uint64_t next_mark() const { return replay_.next_mark(); }
  /// True if the plan waits for other ranks to write on the board.
  [[nodiscard]] bool awaits_board() const { return replay_.awaits_others(); }
  /// The time at which the driver must call `set_time` and `take` even if nothing has happened.
  [[nodiscard]] TimePoint deadline() const { return replay_.deadline(); }

 private:
  [[nodiscard]] bool is_root() const { return place_.parent < 0; }

  // Readiness that travels up the tree.
  void negotiate(Ticket ticket, const Key& key, const Descriptor& descriptor);
  void depart(const Departure& departure);
  void finish_if_due();
  void on_finished(const RankSet& ranks);
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

  // Writing the log, on the root only.
  void sequence();
  void append_all_batches();
  void append(EntryBody body);
  void append_departure(const Departure& departure);
  void apply_log();

  // Applying the log, on every rank.
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
  OutgoingReports reports_{};  // sent to the parent at the next `take`
  Actions actions_{};
  std::uint64_t next_sequence_ = 0;
  std::uint64_t joins_ = 0;  // how often all ranks have joined
  int unexecuted_ = 0;       // batches that this rank has not executed yet
  bool left_ = false;
  bool finished_ = false;  // this rank has left and has executed all its batches
  bool ended_ = false;

  Replay replay_;
  std::uint64_t replayed_ = 0;  // batches run by all plans that have ended
  // Events that came while a plan was live. They are handled at its end.
  std::optional<Departure> own_departure_{};
  std::vector<std::pair<int, ReadinessReport>> postponed_{};  // each with the child that sent it

  // Used by the root only.
  Sequencer sequencer_;
  Planner planner_{};
  LogUpdate outgoing_update_{};  // sent to the children at the next `take`
  RankSet departed_{};
  RankSet all_finished_{};  // the ranks that have finished
  StallInspector stalls_;
};

}  // namespace kolo::internal::negotiation
