// What ranks tell each other: readiness travels up the tree, the agreed log travels down.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/descriptor.hpp"
#include "base/rank_set.hpp"
#include "negotiation/key.hpp"
#include "negotiation/slot_set.hpp"
#include "negotiation/status.hpp"

namespace kolo::negotiation {

/// One descriptor of a key and the ranks that submitted it.
struct Variant {
  Descriptor descriptor;
  RankSet ranks;
  friend bool operator==(const Variant&, const Variant&) = default;
};

/// How many variants of a key are told apart; the ranks of any further ones are only listed.
inline constexpr std::size_t max_variants = 8;

/// Every member of the set below the sender has submitted `key` or has joined. More than one
/// variant is a disagreement.
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

/// A rank ends its session. `clean`: by `shutdown` or at the end of scope.
struct Departure {
  int rank = -1;
  bool clean = true;
  std::string reason{};
  friend bool operator==(const Departure&, const Departure&) = default;
};

/// A key has been pending for long below the sender: who has submitted it so far.
struct Lag {
  Key key;
  OperationType type = OperationType::barrier;
  RankSet submitted;
  std::chrono::milliseconds waited{};
  friend bool operator==(const Lag&, const Lag&) = default;
};

/// From a rank to its parent. What it says of the world is void once a later plan than `epoch` has
/// begun: who had submitted it has withdrawn it.
struct Upward {
  std::uint64_t epoch = 0;  // the last plan of which the sender knew
  std::vector<int> joins;   // ranks that have joined; they count as joined for all that follows
  SlotSet slots;  // submitted, with the descriptor of the last entry for the slot, by every member
                  // of its set below that has not joined
  std::vector<Readiness> ready;
  std::vector<Departure> departures;
  std::vector<Lag> lags;
  std::vector<RankStatus> statuses{};  // answers to an inquiry

  [[nodiscard]] bool empty() const {
    return joins.empty() && slots.empty() && ready.empty() && departures.empty() && lags.empty() &&
           statuses.empty();
  }
  friend bool operator==(const Upward&, const Upward&) = default;
};

/// A part of a batch that is spelled out. With a slot, all ranks enter it into their catalogue.
struct Spelled {
  Key key;
  Descriptor descriptor;
  std::optional<Slot> slot{};
  friend bool operator==(const Spelled&, const Spelled&) = default;
};

/// Operations of one process set to be executed together by its members but for those that are
/// absent, having joined: first those of the slots, ascending, then the spelled.
struct BatchEntry {
  SetId set = world_set;
  RankSet absent{};
  SlotSet slots{};
  std::vector<Spelled> spelled{};
  friend bool operator==(const BatchEntry&, const BatchEntry&) = default;
};

/// The ranks disagree about a key, or agree on what has no meaning without the absent: it fails on
/// all that submitted it.
struct MismatchEntry {
  Readiness conflict;
  RankSet absent{};
  friend bool operator==(const MismatchEntry&, const MismatchEntry&) = default;
};

/// All ranks have joined, `last` as the last: nobody counts as joined any more.
struct JoinEntry {
  int last = -1;
  friend bool operator==(const JoinEntry&, const JoinEntry&) = default;
};

/// There is a process set `set` of `ranks` from here on, unless there was one before.
struct AddSetEntry {
  Key key;  // of the operation that asked for it
  SetId set = world_set;
  RankSet ranks{};
  friend bool operator==(const AddSetEntry&, const AddSetEntry&) = default;
};

struct RemoveSetEntry {
  Key key;
  SetId set = world_set;
  friend bool operator==(const RemoveSetEntry&, const RemoveSetEntry&) = default;
};

/// A rank has left. Whatever is pending in a set that holds it can never complete.
struct DepartureEntry {
  Departure departure;
  friend bool operator==(const DepartureEntry&, const DepartureEntry&) = default;
};

/// A key waited longer than the session allows: its set is broken.
struct StallEntry {
  Lag lag;
  RankSet missing{};
  std::string details{};  // what the missing ranks do
  friend bool operator==(const StallEntry&, const StallEntry&) = default;
};

/// The root asks who has submitted a key that is late. Whoever has it pending answers with a Lag,
/// and who speaks for the ranks of its host says what they do.
struct InquiryEntry {
  Key key;
  friend bool operator==(const InquiryEntry&, const InquiryEntry&) = default;
};

/// All ranks have left: nobody needs this rank any more.
struct EndEntry {
  friend bool operator==(const EndEntry&, const EndEntry&) = default;
};

/// An operation of a plan, as it comes in the first pass.
struct PlanItem {
  Key key;
  Descriptor descriptor;
  std::uint64_t number_stride = 0;  // what the key's number grows by in each pass
  std::int64_t step_stride = 0;     // what the descriptor's step grows by in each pass
  friend bool operator==(const PlanItem&, const PlanItem&) = default;
};

/// From here on the world repeats these batches, which are not in the log, until the ranks have
/// stopped: nothing is appended before. No rank has joined or left.
struct PlanEntry {
  std::uint64_t epoch = 0;  // ascending from 1
  std::vector<std::vector<PlanItem>> batches{};
  std::chrono::nanoseconds usual{};  // how long a pass took lately
  friend bool operator==(const PlanEntry&, const PlanEntry&) = default;
};

struct Entry {
  std::uint64_t sequence = 0;
  std::variant<BatchEntry, MismatchEntry, JoinEntry, AddSetEntry, RemoveSetEntry, DepartureEntry,
               StallEntry, InquiryEntry, EndEntry, PlanEntry>
      body;
  friend bool operator==(const Entry&, const Entry&) = default;
};

/// From a rank to its children: the log, or its next part.
struct Downward {
  std::vector<Entry> entries;
  friend bool operator==(const Downward&, const Downward&) = default;
};

}  // namespace kolo::negotiation
