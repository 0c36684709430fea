// What is recorded of an operation's life, in a fixed size.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <string_view>

#include "base/descriptor.hpp"

namespace kolo::diagnostics {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

enum class EventKind : std::uint8_t {
  submitted,   // an operation, on this rank
  started,     // a batch: all its ranks have agreed on it
  packing,     // of a batch, for so long; while phases are measured
  reducing,    //
  unpacking,   //
  finished,    // an operation
  failed,      // an operation
  plan_begun,  //
  plan_ended,  //
  leaving,     // this rank leaves the session
  peer_left,   // another has; no event of `failed` says more than once who
  stall,       // an operation was reported as late, or given up for it
  fault,       // the session cannot go on
};
inline constexpr int event_kinds = 13;

/// As files have it.
[[nodiscard]] std::string_view to_string(EventKind kind);

inline constexpr std::uint32_t no_name = std::numeric_limits<std::uint32_t>::max();
inline constexpr std::uint64_t no_batch = std::numeric_limits<std::uint64_t>::max();

struct Event {
  TimePoint time{};
  std::uint64_t batch = no_batch;  // its number, the same on all ranks
  // Of an operation which one of its name, from 0, or its number if it has no name. Of a batch how
  // many operations. Of a phase its nanoseconds. Of a plan how many there were.
  std::uint64_t count = 0;
  std::int64_t bytes = 0;
  std::uint32_t name = no_name;  // in the table of names
  std::uint32_t round = 0;       // of counting: joins begin a new one
  std::uint32_t set = 0;
  EventKind kind = EventKind::submitted;
  OperationType type = OperationType::barrier;
  DType dtype = DType::u8;  // of the first tensor
};
static_assert(sizeof(Event) <= 48);

}  // namespace kolo::diagnostics
