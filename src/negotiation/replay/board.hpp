// How far each rank has come with a plan, where all ranks can see it.
#pragma once

#include <cstdint>

namespace kolo::internal::negotiation {

/// How far one rank has come with a plan. It fits one word, which is written and read at once: a
/// rank never sees a position of one plan with the number of another.
struct PlanProgress {
  std::uint64_t epoch = 0;     // of the plan; 0: none yet
  std::uint64_t position = 0;  // it is ready for all batches before this one
  bool stopped = false;        // and will never be for this one
  friend bool operator==(const PlanProgress&, const PlanProgress&) = default;
};

inline constexpr int position_bits = 40;
inline constexpr std::uint64_t last_epoch = (std::uint64_t{1} << (63 - position_bits)) - 1;

[[nodiscard]] constexpr std::uint64_t to_word(const PlanProgress& standing) {
  return standing.epoch << (position_bits + 1) | standing.position << 1 |
         static_cast<std::uint64_t>(standing.stopped);
}

[[nodiscard]] constexpr PlanProgress to_plan_progress(std::uint64_t word) {
  constexpr std::uint64_t positions = (std::uint64_t{1} << position_bits) - 1;
  return {word >> (position_bits + 1), word >> 1 & positions, (word & 1) != 0};
}

/// One word for each rank, zero at first. Who reads a word also sees whatever its rank had seen or
/// done before it wrote the word.
class PlanBoard {
 public:
  enum class Urgency : std::uint8_t {
    progress,  // of interest to those that wait for it
    stop,      // everybody must act
  };

  virtual ~PlanBoard() = default;
  /// This rank's word from now on. Wakes the ranks that it concerns.
  virtual void publish(std::uint64_t word, Urgency urgency) = 0;
  [[nodiscard]] virtual std::uint64_t read(int rank) const = 0;
};

}  // namespace kolo::internal::negotiation
