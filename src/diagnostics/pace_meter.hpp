// SPDX-License-Identifier: Apache-2.0
// Measures how long the program computes before each of its operations.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/pace.hpp"
#include "diagnostics/event.hpp"
#include "diagnostics/names.hpp"

namespace kolo::internal::diagnostics {

/// Adds up, for each name, the time from the submission before to its own, without the time in
/// which the program waited in Kolo. Ranks that reduce together have steps of equal length; of a
/// slow rank, more is the program's own. Needs no clock that ranks share. Called by the driver.
///
/// A window consists of whole steps: it begins and ends with submissions of one name, its anchor.
class PaceMeter {
 public:
  /// An operation of the name with this number was submitted. `counts`: it has a name of its own,
  /// so its submissions count steps. `waited`: for how long the program has waited in Kolo so far.
  void submitted(std::uint32_t name, bool counts, std::int64_t bytes, TimePoint now,
                 std::chrono::nanoseconds waited) {
    if (name >= parts_.size()) parts_.resize(name + 1);
    Part& part = parts_[name];
    // The driver's times are those of its passes, so a wait may seem longer than the time.
    if (const auto computed = now - last_ - (waited - waited_); has_begun_ && computed.count() > 0)
      part.before += computed;
    if (part.submissions++ == 0) touched_.push_back(name);
    part.counts = counts;
    if (std::exchange(part.anchors, anchors_) != anchors_) part.since_anchor = 0;
    ++part.since_anchor;
    bytes_ += bytes;
    last_ = now;
    waited_ = waited;
    if (counts && (name == anchor_ || part.since_anchor >= patience_)) consider(name, now);
    if (counts && !has_begun_) begin(name, few, now);
  }

  /// The last window that has ended since the last call, and was not taken. Fills in neither ranks
  /// nor hosts.
  [[nodiscard]] std::optional<PaceReport> take(const Names& names);

 private:
  struct Part {
    std::chrono::nanoseconds before{};
    std::uint64_t submissions = 0;
    std::uint64_t anchors = 0;       // the submissions of the anchor before the last of this name
    std::uint64_t since_anchor = 0;  // submissions since then
    bool counts = false;
  };
  struct Window {
    std::chrono::nanoseconds length{};
    std::int64_t steps = 0;
    std::int64_t bytes = 0;
    std::vector<std::uint32_t> names{};
    std::vector<Part> parts{};  // one for each of the names
  };

  // If another name is submitted this often without the anchor, the anchor was used only for a
  // while. One that has counted steps, perhaps with names that are used several times per step, is
  // trusted for longer.
  static constexpr std::uint64_t few = 3;
  static constexpr std::uint64_t many = 50;

  void consider(std::uint32_t name, TimePoint now);
  [[nodiscard]] std::uint32_t usual_name() const;
  void begin(std::uint32_t anchor, std::uint64_t patience, TimePoint now);

  std::vector<Part> parts_{};  // by the number of the name
  std::vector<std::uint32_t> touched_{};
  std::uint32_t anchor_ = no_name;
  std::uint64_t patience_ = few;
  std::uint64_t anchors_ = 1;  // submissions of anchors so far
  bool has_begun_ = false;
  bool is_whole_ = false;  // the window has begun with the anchor
  TimePoint began_{};
  TimePoint last_{};                   // the last submission
  std::chrono::nanoseconds waited_{};  // until then
  std::int64_t bytes_ = 0;
  std::uint64_t steps_ = 0;  // in all windows so far
  std::optional<Window> ended_{};
};

}  // namespace kolo::internal::diagnostics
