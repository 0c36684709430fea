// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/timeline_tracks.hpp"

#include <algorithm>
#include <utility>

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

void TimelineTracks::set(std::shared_ptr<Timeline> timeline) {
  batch_tracks_.clear();
  shared_tracks_.clear();
  named_tracks_ = 0;
  ++number_;
  timeline_ = std::move(timeline);
}

void TimelineTracks::begin_operation(Tag& tag, Names::Entry& entry, bool named) {
  if (entry.timeline != number_) {
    entry.timeline = number_;
    entry.track =
        named && named_tracks_ < max_named_tracks ? first_named_track + named_tracks_++ : 0;
  }
  tag.timeline = number_;
  tag.track = entry.track != 0 ? entry.track : first_shared_track + shared_tracks_.take();
}

void TimelineTracks::end_operation(const Tag& tag, const Names::Entry& entry, std::uint64_t batch,
                                   const BatchTimes& times, bool failed) {
  if (tag.timeline != number_) return;
  if (tag.track < first_named_track) shared_tracks_.give_back(tag.track - first_shared_track);
  timeline_->push({.begin = tag.submitted,
                   .agreed = times.agreed,
                   .end = times.done,
                   .batch = batch,
                   .bytes = tag.bytes,
                   .text = entry.text,
                   .track = tag.track,
                   .set = entry.set,
                   .kind = Span::Kind::operation,
                   .type = tag.type,
                   .dtype = tag.dtype,
                   .failed = failed});
}

std::uint32_t TimelineTracks::begin_batch(const StartedBatch& batch, TimePoint now) {
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

void TimelineTracks::add_phase(std::uint32_t track, const char* name, TimePoint begin,
                               TimePoint end) {
  if (timeline_ == nullptr || track == 0) return;
  timeline_->push(
      {.begin = begin, .end = end, .what = name, .track = track, .kind = Span::Kind::phase});
}

void TimelineTracks::end_batch(std::uint32_t track, TimePoint now) {
  if (timeline_ == nullptr || track == 0) return;
  timeline_->push({.end = now, .track = track, .kind = Span::Kind::batch_end});
  batch_tracks_.give_back(track - first_batch_track);
}

void TimelineTracks::add_note(EventKind kind, const std::string& text, TimePoint now) {
  if (timeline_ == nullptr) return;
  timeline_->push({.begin = now,
                   .text = std::make_shared<const std::string>(text),
                   .what = to_string(kind).data(),
                   .track = session_track,
                   .kind = Span::Kind::instant});
}

}  // namespace kolo::internal::diagnostics
