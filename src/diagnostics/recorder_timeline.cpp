// SPDX-License-Identifier: Apache-2.0
// The recorder's part of the timeline.
#include <algorithm>
#include <utility>

#include "diagnostics/recorder.hpp"

namespace kolo::internal::diagnostics {
namespace {

constexpr std::uint32_t max_named_tracks = 2000;

}  // namespace

std::uint32_t TrackPool::take() {
  const auto free = std::ranges::find(taken_, false);
  const auto track = static_cast<std::uint32_t>(free - taken_.begin());
  if (free == taken_.end()) taken_.push_back(true);
  taken_[track] = true;
  return track;
}

void Recorder::set_timeline(std::shared_ptr<Timeline> timeline) {
  // Tracks belong to one timeline: the ends of batches that are open now must not go to the next.
  for (Open& open : open_) open.track = 0;
  batch_tracks_.clear();
  shared_tracks_.clear();
  named_tracks_ = 0;
  ++timeline_number_;
  timeline_ = std::move(timeline);
}

void Recorder::give_track(Tag& tag, Names::Entry& entry, bool named) {
  if (entry.timeline != timeline_number_) {
    entry.timeline = timeline_number_;
    entry.track =
        named && named_tracks_ < max_named_tracks ? first_named_track + named_tracks_++ : 0;
  }
  tag.timeline = timeline_number_;
  tag.track = entry.track != 0 ? entry.track : first_shared_track + shared_tracks_.take();
}

void Recorder::show(const Tag& tag, std::uint64_t batch, const BatchTimes& times, bool failed) {
  if (tag.timeline != timeline_number_) return;
  if (tag.track < first_named_track) shared_tracks_.give_back(tag.track - first_shared_track);
  timeline_->push({.begin = tag.submitted,
                   .agreed = times.agreed,
                   .end = times.done,
                   .batch = batch,
                   .bytes = tag.bytes,
                   .text = names_[tag.name].text,
                   .track = tag.track,
                   .set = names_[tag.name].set,
                   .kind = Span::Kind::operation,
                   .type = tag.type,
                   .dtype = tag.dtype,
                   .failed = failed});
}

/// Shows the beginning of a batch. Returns its track; 0 if the span was dropped or there is no
/// timeline.
std::uint32_t Recorder::show_batch(const Batch& batch, TimePoint now) {
  if (timeline_ == nullptr) return 0;
  const std::uint32_t place = batch_tracks_.take();
  if (timeline_->push({.begin = now,
                       .batch = batch.number,
                       .count = batch.operations,
                       .bytes = batch.bytes,
                       .track = first_batch_track + place,
                       .set = static_cast<std::uint32_t>(batch.set),
                       .kind = Span::Kind::batch_begin,
                       .type = batch.type,
                       .dtype = batch.dtype}))
    return first_batch_track + place;
  batch_tracks_.give_back(place);
  return 0;
}

}  // namespace kolo::internal::diagnostics
