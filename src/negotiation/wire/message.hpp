// SPDX-License-Identifier: Apache-2.0
// The control messages. Readiness and paces travel up the tree, the agreed log and heartbeats
// travel down, and failures travel along every edge.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/activity.hpp"
#include "base/descriptor.hpp"
#include "base/failure.hpp"
#include "base/key.hpp"
#include "base/pace.hpp"
#include "base/rank_set.hpp"
#include "negotiation/wire/response_cache.hpp"

namespace kolo::internal::negotiation {

/// One descriptor of a key and the ranks that submitted the key with it.
struct Variant {
  Descriptor descriptor;
  RankSet ranks;
  friend bool operator==(const Variant&, const Variant&) = default;
};

/// The maximum number of variants of a key. Further variants are sent as ranks only.
inline constexpr std::size_t max_variants = 8;

/// Every member of the key's set at or below the sender has submitted `key` or has joined. More
/// than one variant is a disagreement.
struct Readiness {
  Key key;
  std::vector<Variant> variants;
  RankSet others{};

  [[nodiscard]] bool disagrees() const { return variants.size() > 1 || !others.empty(); }
  [[nodiscard]] RankSet submitters() const {
    RankSet ranks = others;
    for (const Variant& variant : variants) ranks.insert(variant.ranks);
    return ranks;
  }
  friend bool operator==(const Readiness&, const Readiness&) = default;
};

/// A rank has left. Once this entry is in the log, no pending operation of a set that contains the
/// rank can complete.
struct Departure {
  int rank = -1;
  std::string reason{};
  friend bool operator==(const Departure&, const Departure&) = default;
};

/// A key that has been pending for long at or below the sender, and the ranks that have submitted
/// it so far.
struct Lag {
  Key key;
  OperationType type = OperationType::barrier;
  RankSet submitted;
  std::chrono::milliseconds waited{};
  friend bool operator==(const Lag&, const Lag&) = default;
};

/// An operation that the rank has submitted and that is not answered yet.
struct WaitingOperation {
  Key key;
  OperationType type = OperationType::barrier;
  std::chrono::milliseconds waited{};
  friend bool operator==(const WaitingOperation&, const WaitingOperation&) = default;
};

/// The maximum number of operations that a status lists.
inline constexpr std::size_t max_listed = 8;

/// The status that a rank reports to other ranks.
struct RankStatus {
  int rank = -1;
  std::int64_t process = 0;  // the process ID
  ProcessState state = ProcessState::unknown;
  std::chrono::milliseconds heard{};  // time since its session last made progress
  std::chrono::milliseconds idle{};   // time since it last submitted an operation
  bool submitted = false;             // it has submitted an operation since the session began
  bool waits = false;                 // one of its threads waits in Kolo
  bool blocked = false;               // all threads that ever submitted wait, and nothing moves
  int pending = 0;                    // number of pending operations
  std::vector<WaitingOperation> operations{};  // the oldest pending operations
  std::string batch{};   // the batch in progress, such as "batch 7 (allreduce "x", 4 MB)"
  std::string awaits{};  // the step that the batch waits for, such as "to deposit piece 3"
  RankSet awaited{};     // the ranks that the batch waits for
  std::optional<Failure> ended{};  // the reason why its session has ended; none if it has not

  [[nodiscard]] bool lists(const Key& key) const {
    return std::ranges::find(operations, key, &WaitingOperation::key) != operations.end();
  }
  /// True if the rank makes no progress and cannot answer.
  [[nodiscard]] bool silent() const {
    using namespace std::chrono_literals;
    return state == ProcessState::stopped || state == ProcessState::traced ||
           state == ProcessState::ended || heard > 2s;
  }
  friend bool operator==(const RankStatus&, const RankStatus&) = default;
};

/// From a rank to its parent. If a plan later than `epoch` has begun, the receiver ignores the
/// parts that concern the world, because the submitters have withdrawn those operations. The
/// receiver also ignores slots that were freed by a removal of which the sender did not know.
struct ReadinessReport {
  std::uint64_t epoch = 0;     // the last plan that the sender knew
  std::uint64_t removals = 0;  // the number of removed process sets that the sender knew
  std::vector<int> joins;      // newly joined ranks; they count as joined for the whole report
  CacheSlotSet slots;          // operations submitted, with the cached descriptor, by every
                               // member at or below the sender that has not joined
  std::vector<Readiness> ready;
  std::vector<Departure> departures;
  std::vector<Lag> lags;
  std::vector<RankStatus> statuses{};  // answers to an inquiry
  RankSet finished{};  // ranks that have left and have executed all their batches since

  [[nodiscard]] bool empty() const {
    return joins.empty() && slots.empty() && ready.empty() && departures.empty() && lags.empty() &&
           statuses.empty() && finished.empty();
  }
  friend bool operator==(const ReadinessReport&, const ReadinessReport&) = default;
};

/// An operation of a batch that is sent in full. If it has a slot, every rank enters the operation
/// into its cache.
struct UncachedOperation {
  Key key;
  Descriptor descriptor;
  std::optional<CacheSlot> slot{};
  friend bool operator==(const UncachedOperation&, const UncachedOperation&) = default;
};

/// Operations of one process set that its members, except the absent (joined) ones, execute as one
/// batch. The operations of the slots come first, ascending, and then the uncached operations.
struct BatchEntry {
  SetId set = world_set;
  RankSet absent{};
  CacheSlotSet slots{};
  std::vector<UncachedOperation> uncached{};
  friend bool operator==(const BatchEntry&, const BatchEntry&) = default;
};

/// The ranks disagree about a key, or its operation is undefined without the absent ranks. The
/// operation fails on all ranks that submitted it.
struct MismatchEntry {
  Readiness conflict;
  RankSet absent{};
  friend bool operator==(const MismatchEntry&, const MismatchEntry&) = default;
};

/// All ranks have joined, rank `last` last. From here on, no rank counts as joined.
struct JoinEntry {
  int last = -1;
  friend bool operator==(const JoinEntry&, const JoinEntry&) = default;
};

/// The process set `set` with the members `ranks` exists from here on. It may have existed before.
struct AddSetEntry {
  Key key;  // the key of the operation that added the set
  SetId set = world_set;
  RankSet ranks{};
  friend bool operator==(const AddSetEntry&, const AddSetEntry&) = default;
};

struct RemoveSetEntry {
  Key key;
  SetId set = world_set;
  friend bool operator==(const RemoveSetEntry&, const RemoveSetEntry&) = default;
};

/// A key has waited longer than the session allows. Its process set is broken from here on.
struct StallEntry {
  Lag lag;
  RankSet missing{};
  std::string details{};  // a description of the missing ranks' statuses
  friend bool operator==(const StallEntry&, const StallEntry&) = default;
};

/// The root asks about a late key. Each rank on which the key is pending answers with a Lag. The
/// rank that reports for its host also answers with the statuses of the host's ranks.
struct InquiryEntry {
  Key key;
  friend bool operator==(const InquiryEntry&, const InquiryEntry&) = default;
};

/// All ranks have left and have executed all their batches, so no rank needs another any more.
struct EndEntry {
  friend bool operator==(const EndEntry&, const EndEntry&) = default;
};

/// An operation of a plan, as it is submitted in the plan's first pass.
struct PlanItem {
  Key key;
  Descriptor descriptor;
  std::uint64_t number_stride = 0;  // added to the key's number in each pass
  std::int64_t step_stride = 0;     // added to the descriptor's step in each pass
  friend bool operator==(const PlanItem&, const PlanItem&) = default;
};

/// From here on, the world repeats these batches until all ranks have stopped. The repetitions are
/// not in the log, and nothing is appended to the log before they have stopped. No rank has joined
/// or left at this point.
struct PlanEntry {
  std::uint64_t epoch = 0;  // ascending from 1
  std::vector<std::vector<PlanItem>> batches{};
  std::chrono::nanoseconds usual{};  // duration of a recent pass
  friend bool operator==(const PlanEntry&, const PlanEntry&) = default;
};

using EntryBody = std::variant<BatchEntry, MismatchEntry, JoinEntry, AddSetEntry, RemoveSetEntry,
                               Departure, StallEntry, InquiryEntry, EndEntry, PlanEntry>;

struct Entry {
  std::uint64_t sequence = 0;  // without gaps, so that a lost or repeated entry is detected
  EntryBody body;
  friend bool operator==(const Entry&, const Entry&) = default;
};

/// The next part of the log, from a rank to its children.
struct LogUpdate {
  std::vector<Entry> entries;
  friend bool operator==(const LogUpdate&, const LogUpdate&) = default;
};

/// Sent down the tree between ranks that share no memory, to show that the session makes progress.
/// TCP cannot show this, since the kernel acknowledges data even for a stopped process.
struct Heartbeat {
  static constexpr std::chrono::nanoseconds max_interval = std::chrono::seconds(1);

  int unresponsive_ancestor = -1;                    // a silent rank further up; -1: none is known
  std::chrono::nanoseconds interval = max_interval;  // the time until the next heartbeat
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};

/// The content of a control message. A Failure is the reason why the whole session ends. It travels
/// once along every edge between hosts.
using MessageBody = std::variant<ReadinessReport, LogUpdate, Heartbeat, Failure, PaceReport>;

struct ControlMessage {
  std::uint64_t session = 0;  // a message of another session is ignored
  MessageBody body;
};

}  // namespace kolo::internal::negotiation
