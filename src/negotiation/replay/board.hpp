// SPDX-License-Identifier: Apache-2.0
// The board on which each rank publishes its progress with a plan. All ranks can read it.
#pragma once

#include <cstdint>

namespace kolo::internal::negotiation {

/// One rank's progress with a plan. It fits into one word, which is written and read atomically, so
/// that no rank reads the position of one plan together with the epoch of another.
struct PlanProgress {
  std::uint64_t epoch = 0;     // the number of the plan; 0: no plan yet
  std::uint64_t position = 0;  // the rank is ready for all batches before this position
  bool stopped = false;        // the rank will never be ready for the batch at this position
  friend bool operator==(const PlanProgress&, const PlanProgress&) = default;
};

inline constexpr int position_bits = 40;
inline constexpr std::uint64_t last_position = (std::uint64_t{1} << position_bits) - 1;
inline constexpr std::uint64_t last_epoch = (std::uint64_t{1} << (63 - position_bits)) - 1;

[[nodiscard]] constexpr std::uint64_t to_word(const PlanProgress& progress) {
  return progress.epoch << (position_bits + 1) | progress.position << 1 |
         static_cast<std::uint64_t>(progress.stopped);
}

[[nodiscard]] constexpr PlanProgress to_plan_progress(std::uint64_t word) {
  return {word >> (position_bits + 1), word >> 1 & last_position, (word & 1) != 0};
}

/// One word for each rank, initially zero. Words are written with release and read with acquire, so
/// that the reader of a word also sees everything that its writer had read or written before.
class PlanBoard {
 public:
  enum class Urgency : std::uint8_t {
    progress,  // concerns the ranks that wait for progress, once all have made it
    stop,      // concerns all ranks
  };

  virtual ~PlanBoard() = default;
  /// Writes this rank's word. A stop also wakes all ranks.
  virtual void publish(std::uint64_t word, Urgency urgency) = 0;
  /// Wakes the ranks that wait for progress if a batch may run because of what this rank has
  /// published since the last call. Call it at the end of a pass: ranks that wake then find the
  /// data that this rank has deposited for the batch.
  virtual void wake() {}
  [[nodiscard]] virtual std::uint64_t read(int rank) const = 0;

  /// True if the words of all ranks but `rank` are greater than `before`. Only then can a batch run
  /// because this rank's word has grown from `before`: otherwise another word, which has not grown,
  /// still keeps it from running, and the rank of that word wakes the others later.
  [[nodiscard]] bool have_others_passed(std::uint64_t before, int rank, int ranks) const {
    for (int other = 0; other < ranks; ++other)
      if (other != rank && read(other) <= before) return false;
    return true;
  }
};

}  // namespace kolo::internal::negotiation
