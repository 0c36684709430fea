// SPDX-License-Identifier: Apache-2.0
// Shows operations and batches on the tracks of a timeline.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "diagnostics/names.hpp"
#include "diagnostics/timeline.hpp"

namespace kolo::internal::diagnostics {

/// Gives out the lowest number that is free.
class TrackPool {
 public:
  [[nodiscard]] std::uint32_t take();
  void give_back(std::uint32_t track) { taken_[track] = false; }
  void clear() { taken_.clear(); }

 private:
  std::vector<bool> taken_{};
};

/// The current timeline and its tracks: one for each of the first names, and pools of tracks for
/// all other operations and for batches. Called by the driver only. `begin_operation` and
/// `end_operation` need a timeline; without one, the other functions do nothing.
class TimelineTracks {
 public:
  /// Null: no timeline.
  void set(std::shared_ptr<Timeline> timeline);
  [[nodiscard]] const std::shared_ptr<Timeline>& timeline() const { return timeline_; }

  /// `entry` is the entry of the operation's name; `named`: the name is not empty.
  void begin_operation(Tag& tag, Names::Entry& entry, bool named);
  /// `batch` may be `no_batch`.
  void end_operation(const Tag& tag, const Names::Entry& entry, std::uint64_t batch,
                     const BatchTimes& times, bool failed);

  /// Returns the track of the batch; 0 if the batch is not shown.
  [[nodiscard]] std::uint32_t begin_batch(const StartedBatch& batch, TimePoint now);
  /// `name` is static.
  void add_phase(std::uint32_t track, const char* name, TimePoint begin, TimePoint end);
  void end_batch(std::uint32_t track, TimePoint now);

  void add_note(EventKind kind, const std::string& text, TimePoint now);

 private:
  std::shared_ptr<Timeline> timeline_{};
  std::uint32_t number_ = 0;  // the timelines so far
  std::uint32_t named_tracks_ = 0;
  TrackPool shared_tracks_{};
  TrackPool batch_tracks_{};
};

}  // namespace kolo::internal::diagnostics
