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

namespace kolo::negotiation {

/// One descriptor of a key and the ranks that submitted it.
struct Variant {
  Descriptor descriptor;
  RankSet ranks;
};

/// How many variants of a key are told apart; the ranks of any further ones are only listed.
inline constexpr std::size_t max_variants = 8;

/// Every rank below the sender has submitted `key`. More than one variant is a disagreement.
struct Readiness {
  Key key;
  std::vector<Variant> variants;
  RankSet others{};
};

/// A rank ends its session. `clean`: by `shutdown` or at the end of scope.
struct Departure {
  int rank = -1;
  bool clean = true;
  std::string reason{};
};

/// A key has been pending for long below the sender: who has submitted it so far.
struct Lag {
  Key key;
  OperationType type = OperationType::barrier;
  RankSet submitted;
  std::chrono::milliseconds waited{};
};

/// From a rank to its parent.
struct Upward {
  SlotSet slots;  // complete below, with the descriptor of the last entry for the slot
  std::vector<Readiness> ready;
  std::vector<Departure> departures;
  std::vector<Lag> lags;

  [[nodiscard]] bool empty() const {
    return slots.empty() && ready.empty() && departures.empty() && lags.empty();
  }
};

/// A member of a batch that is spelled out. With a slot, all ranks enter it into their catalogue.
struct Spelled {
  Key key;
  Descriptor descriptor;
  std::optional<Slot> slot{};
};

/// Operations to be executed together: first those of the slots, ascending, then the spelled.
struct BatchEntry {
  SlotSet slots;
  std::vector<Spelled> spelled;
};

/// The ranks disagree about a key: it fails on all of them.
struct MismatchEntry {
  Readiness conflict;
};

/// A rank has left. Whatever is pending can never complete.
struct DepartureEntry {
  Departure departure;
};

/// A key waited longer than the session allows.
struct StallEntry {
  Lag lag;
};

/// The root asks who has submitted a key that is late. Whoever has it pending answers with a Lag.
struct InquiryEntry {
  Key key;
};

/// All ranks have left: nobody needs this rank any more.
struct EndEntry {};

struct Entry {
  std::uint64_t sequence = 0;
  std::variant<BatchEntry, MismatchEntry, DepartureEntry, StallEntry, InquiryEntry, EndEntry> body;
};

/// From a rank to its children: the log, or its next part.
struct Downward {
  std::vector<Entry> entries;
};

}  // namespace kolo::negotiation
