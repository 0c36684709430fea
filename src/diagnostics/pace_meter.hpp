// SPDX-License-Identifier: Apache-2.0
// Measures how long the program computes before each of its operations.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/pace.hpp"
#include "diagnostics/event.hpp"
#include "diagnostics/names.hpp"

namespace kolo::internal::diagnostics {

/// Adds up, for each name, the time from the submission before to its own, without the time in
/// which the program waited in Kolo. Ranks that reduce together have steps of equal length; of a
/// slow rank, more is the program's own. Needs no clock that ranks share. Called by the driver.
class PaceMeter {
 public:
  /// The program has left a wait at this time.
  void resumed(TimePoint at) {
    if (at > last_) last_ = at;
  }
  /// An operation of the name with this number was submitted. `counts`: it has a name of its own,
  /// so its submissions count steps.
  void submitted(std::uint32_t name, bool counts, std::int64_t bytes, TimePoint now) {
    if (name >= parts_.size()) parts_.resize(name + 1);
    Part& part = parts_[name];
    if (part.submissions++ == 0) touched_.push_back(name);
    part.counts = counts;
    bytes_ += bytes;
    if (last_ == TimePoint{}) began_ = now;  // what came before is the start of the program
    if (last_ != TimePoint{} && now > last_) part.before += now - last_;
    last_ = now > last_ ? now : last_;
  }

  /// The steps since the window began, once it is long enough; then a new window begins. Fills in
  /// neither ranks nor hosts.
  [[nodiscard]] std::optional<PaceReport> take(const Names& names, TimePoint now);

 private:
  struct Part {
    std::chrono::nanoseconds before{};
    std::uint64_t submissions = 0;
    bool counts = false;
  };

  void begin(TimePoint now);

  std::vector<Part> parts_{};  // by the number of the name
  std::vector<std::uint32_t> touched_{};
  TimePoint began_{};
  TimePoint last_{};  // the last submission, or the end of a wait if that is later
  std::int64_t bytes_ = 0;
};

}  // namespace kolo::internal::diagnostics
