// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

namespace kolo::internal::diagnostics {
namespace {

// The writer polls: a wake-up would cost the driver more than the span itself.
constexpr std::chrono::milliseconds poll_interval{10};
constexpr std::size_t max_buffered = 1 << 16;  // bytes
constexpr std::uint32_t max_named_tracks = 2000;

}  // namespace

Timeline::Timeline(const std::string& path, int rank, std::size_t capacity)
    : queue_(capacity), file_(path), thread_([this, rank] { write(rank); }) {}

Timeline::~Timeline() { close(); }

/// Every open batch reserves a place in the queue, so that its end is never dropped: viewers nest
/// the beginnings and ends of a track.
bool Timeline::push(Span span) {
  const bool begins = span.kind == Span::Kind::batch_begin;
  if (span.kind == Span::Kind::batch_end) --open_batches_;
  const bool taken = queue_.push(std::move(span), open_batches_ + (begins ? 1 : 0));
  if (begins && taken) ++open_batches_;
  return taken;
}

void Timeline::write(int rank) {
  TraceEvents events(file_, rank);
  std::uint64_t dropped = 0;
  std::unique_lock lock(mutex_);
  for (bool last = false; !last;) {
    // `stopping_` is read before the queue, so that all spans pushed before `close` are written.
    last = stopped_.wait_for(lock, poll_interval, [this] { return stopping_; });
    lock.unlock();
    queue_.take([&](const Span& span) {
      events.add(span);
      if (file_.buffered() > max_buffered) file_.flush();
    });
    if (std::exchange(dropped, queue_.dropped()) != queue_.dropped())
      events.add_dropped(Clock::now(), dropped = queue_.dropped());
    file_.flush();
    lock.lock();
  }
}

std::string Timeline::close() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_one();
  if (thread_.joinable()) thread_.join();
  file_.finish();
  return file_.error();
}

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

std::string path_of_rank(const std::string& path, int rank) {
  std::string own = path;
  bool for_all = false;
  for (std::size_t at = own.find("%r"); at != std::string::npos; at = own.find("%r", at)) {
    own.replace(at, 2, std::to_string(rank));
    for_all = true;
  }
  return for_all || rank == 0 ? own : "";
}

std::shared_ptr<Timeline> open_timeline(const std::string& path, int rank) {
  const std::string own = path_of_rank(path, rank);
  return own.empty() ? nullptr : std::make_shared<Timeline>(own, rank);
}

std::string path_of_session(const std::string& path, std::uint64_t number) {
  if (path.empty()) return path;
  const std::filesystem::path whole(path);
  return (whole.parent_path() / whole.stem()).string() + fmt::format(".{}", number) +
         whole.extension().string();
}

}  // namespace kolo::internal::diagnostics
