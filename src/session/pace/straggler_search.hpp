// SPDX-License-Identifier: Apache-2.0
// Finds the rank that the others wait for in each step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/pace.hpp"
#include "base/session_clock.hpp"

namespace kolo::internal::session {

/// Finds the straggler in successive reports of all ranks.
class StragglerSearch {
 public:
  using TimePoint = SessionClock::TimePoint;

  /// `percent`: a rank counts if it is late by this part of a step; 0: none does.
  explicit StragglerSearch(std::int64_t percent) : percent_(percent) {}

  /// The straggler, once several windows in a row have had the same one.
  [[nodiscard]] std::optional<Straggler> find(const PaceReport& all, TimePoint now);

  /// Why there is no straggler.
  [[nodiscard]] std::string in_words(const PaceReport& all) const;

 private:
  struct Streak {
    Straggler straggler{};
    std::uint64_t steps = 0;  // of the rank, in the last window
    int windows = 0;
    TimePoint since{};
  };

  std::int64_t percent_;
  Streak streak_{};
};

}  // namespace kolo::internal::session
