// SPDX-License-Identifier: Apache-2.0
// Events in the life of an operation, in a fixed size, and the ring that keeps the latest.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "base/descriptor.hpp"
#include "base/enumerators.hpp"

namespace kolo::internal::diagnostics {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

enum class EventKind : std::uint8_t {
  submitted,  // this rank submitted an operation
  started,    // a batch: all its ranks have agreed on it
  packing,    // a phase of a batch and its duration, while phases are measured
  reducing,   // the same
  unpacking,  // the same
  finished,   // an operation
  failed,     // an operation
  plan_begun,
  plan_ended,
  leaving,    // this rank leaves the session
  peer_left,  // another rank has left; the note names it
  stall,      // an operation was reported as late, or failed because it was late
  fault,      // the session cannot continue
  last = fault,
};

/// The names of the kinds in files.
[[nodiscard]] constexpr std::string_view to_string(EventKind kind) {
  constexpr auto names = std::to_array<std::string_view>(
      {"submitted", "started", "packing", "reducing", "unpacking", "finished", "failed",
       "plan begun", "plan ended", "leaving", "peer left", "stall", "fault"});
  static_assert(names.size() == enumerator_count<EventKind>);
  return names[static_cast<std::size_t>(kind)];
}

inline constexpr std::uint32_t no_name = std::numeric_limits<std::uint32_t>::max();
inline constexpr std::uint64_t no_batch = std::numeric_limits<std::uint64_t>::max();

struct Event {
  TimePoint time{};
  std::uint64_t batch = no_batch;  // the number of the batch, the same on all ranks
  // An operation: how many operations of its name preceded it, or its number if it is unnamed. A
  // batch: its number of operations. A phase: its nanoseconds. A plan: the plans begun so far.
  std::uint64_t count = 0;
  std::int64_t bytes = 0;
  std::uint32_t name = no_name;  // index in the table of names
  std::uint32_t round = 0;       // counts rounds: each join begins a new one
  std::uint32_t set = 0;
  EventKind kind = EventKind::submitted;
  OperationType type = OperationType::barrier;
  DType dtype = DType::u8;  // the dtype of the first tensor
};
static_assert(sizeof(Event) <= 48);

/// The recorder's data about an operation, stored in the operation until it is done.
struct Tag {
  TimePoint submitted{};
  std::uint64_t count = 0;  // as in Event
  std::uint32_t name = no_name;
  std::uint32_t round = 0;
  std::uint64_t losses = 0;  // `name` is valid until the name table's losses exceed this
  std::uint32_t track = 0;   // in the timeline number `timeline`
  std::uint32_t timeline = 0;
  std::int64_t bytes = 0;
  OperationType type = OperationType::barrier;
  DType dtype = DType::u8;  // the first tensor's
};

struct StartedBatch {
  std::uint64_t number = 0;
  std::int64_t set = 0;
  OperationType type = OperationType::barrier;
  DType dtype = DType::u8;
  std::size_t operations = 0;
  std::int64_t bytes = 0;
};

struct BatchTimes {
  TimePoint agreed{};
  TimePoint done{};
};

/// The last events, in memory that is allocated once. Not thread-safe.
class EventRing {
 public:
  /// Keeps the last `capacity` events; none if that is 0.
  explicit EventRing(std::size_t capacity) : events_(capacity) {}

  void push(const Event& event) {
    if (events_.empty()) return;
    events_[next_] = event;
    if (++next_ == events_.size()) next_ = 0;
    ++total_;
  }

  [[nodiscard]] std::size_t capacity() const { return events_.size(); }
  /// The number of events that were ever pushed.
  [[nodiscard]] std::uint64_t total() const { return total_; }

  /// Calls `use(event)` for the kept events, oldest first.
  template <typename Use>
  void for_each(Use use) const {
    const bool full = total_ >= events_.size();
    for (std::size_t i = full ? next_ : 0; full && i < events_.size(); ++i) use(events_[i]);
    for (std::size_t i = 0; i < next_; ++i) use(events_[i]);
  }

 private:
  std::vector<Event> events_;
  std::size_t next_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace kolo::internal::diagnostics
