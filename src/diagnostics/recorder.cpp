#include "diagnostics/recorder.hpp"

#include <algorithm>
#include <utility>

#include "diagnostics/trace_events.hpp"

namespace kolo::diagnostics {
namespace {

constexpr std::size_t most_notes = 64;
constexpr std::uint32_t most_named_tracks = 2000;

// Phases so close to each other are shown as one.
constexpr std::chrono::microseconds gap{2};

std::uint64_t nanoseconds(Clock::duration duration) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(
      0, std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count()));
}

DType dtype_of(const Descriptor& descriptor) {
  return descriptor.tensors.empty() ? DType::u8 : descriptor.tensors.front().dtype;
}

EventKind kind_of(Phase phase) {
  return phase == Phase::pack     ? EventKind::packing
         : phase == Phase::reduce ? EventKind::reducing
                                  : EventKind::unpacking;
}

const char* name_of(Phase phase) {
  return phase == Phase::pack ? "PACK" : phase == Phase::reduce ? "REDUCE" : "UNPACK";
}

}  // namespace

std::uint32_t TrackPool::take() {
  const auto free = std::ranges::find(taken_, false);
  const auto track = static_cast<std::uint32_t>(free - taken_.begin());
  if (free == taken_.end()) {
    taken_.push_back(true);
  } else {
    *free = true;
  }
  return track;
}

Recorder::Recorder(std::size_t events, bool measures)
    : events_(events), names_(events), measures_(measures) {}

// ---- operations ----

Event Recorder::event_of(EventKind kind, const Tag& tag, const Descriptor& descriptor,
                         TimePoint now) const {
  return {.time = now,
          .count = tag.count,
          .bytes = tag.bytes,
          .name = tag.name,
          .round = tag.round,
          .set = names_[tag.name].set,
          .kind = kind,
          .type = descriptor.type,
          .dtype = dtype_of(descriptor)};
}

Tag Recorder::submitted(const Subject& subject, TimePoint now) {
  counters_.submitted.add();
  Tag tag{.submitted = now, .count = subject.number, .round = round_, .bytes = subject.bytes};
  tag.name =
      names_.find(subject.name, static_cast<std::uint32_t>(subject.set), counters_.submitted.get());
  Names::Entry& entry = names_[tag.name];
  if (std::exchange(entry.round, round_) != round_) entry.submitted = 0;
  if (!subject.name.empty()) tag.count = entry.submitted;
  entry.submitted = tag.count + 1;
  ++entry.pending;
  if (timeline_) give_track(tag, entry, !subject.name.empty());
  events_.push(event_of(EventKind::submitted, tag, subject.descriptor, now));
  return tag;
}

void Recorder::finished(const Tag& tag, const Descriptor& descriptor, std::uint64_t batch,
                        TimePoint agreed, TimePoint now) {
  auto& kind = counters_.kinds[static_cast<std::size_t>(descriptor.type)];
  kind.operations.add();
  kind.bytes.add(static_cast<std::uint64_t>(tag.bytes));
  counters_.negotiation.add(nanoseconds(agreed - tag.submitted));
  Event event = event_of(EventKind::finished, tag, descriptor, now);
  event.batch = batch;
  events_.push(event);
  show(tag, descriptor, batch, agreed, now, false);
  --names_[tag.name].pending;
}

void Recorder::answered(const Tag& tag, const Descriptor& descriptor, TimePoint now) {
  counters_.kinds[static_cast<std::size_t>(descriptor.type)].operations.add();
  events_.push(event_of(EventKind::finished, tag, descriptor, now));
  show(tag, descriptor, no_batch, now, now, false);
  --names_[tag.name].pending;
  if (descriptor.type == OperationType::join) ++round_;
}

void Recorder::failed(const Tag& tag, const Descriptor& descriptor, TimePoint now) {
  counters_.failed.add();
  events_.push(event_of(EventKind::failed, tag, descriptor, now));
  show(tag, descriptor, no_batch, now, now, true);
  --names_[tag.name].pending;
}

// ---- batches ----

void Recorder::batch_started(const Batch& batch, TimePoint now) {
  counters_.batches.add();
  counters_.batch_operations.add(batch.operations);
  counters_.batch_bytes.add(static_cast<std::uint64_t>(batch.bytes));
  events_.push({.time = now,
                .batch = batch.number,
                .count = batch.operations,
                .bytes = batch.bytes,
                .set = static_cast<std::uint32_t>(batch.set),
                .kind = EventKind::started,
                .type = batch.type,
                .dtype = batch.dtype});
  Open open{.batch = batch, .started = now, .last_begin = now, .last_end = now};
  if (timeline_) {
    const std::uint32_t place = batch_tracks_.take();
    Span span;
    span.kind = Span::Kind::batch_begin;
    span.begin = now;
    span.batch = batch.number;
    span.count = batch.operations;
    span.bytes = batch.bytes;
    span.track = first_batch_track + place;
    span.set = static_cast<std::uint32_t>(batch.set);
    span.type = batch.type;
    span.dtype = batch.dtype;
    if (timeline_->push(std::move(span))) {
      open.track = first_batch_track + place;
    } else {
      batch_tracks_.give_back(place);
    }
  }
  open_.push_back(open);
}

Recorder::Open* Recorder::find(std::uint64_t batch) {
  const auto found =
      std::ranges::find(open_, batch, [](const Open& one) { return one.batch.number; });
  return found == open_.end() ? nullptr : &*found;
}

Recorder::Started Recorder::started(std::uint64_t batch) {
  const Open* const open = find(batch);
  return open == nullptr ? Started{} : Started{open->started, open->batch.bytes};
}

void Recorder::phase(std::uint64_t batch, Phase phase, TimePoint begin, TimePoint end) {
  Open* const open = find(batch);
  if (open == nullptr) return;
  open->spent[static_cast<std::size_t>(phase)] +=
      static_cast<std::int64_t>(nanoseconds(end - begin));
  if (open->any && open->last == phase && begin - open->last_end < gap) {
    open->last_end = end;
    return;
  }
  if (!open->any) open->last_end = begin;
  show_last_phase(*open);
  open->any = true;
  open->last = phase;
  open->last_begin = begin;
  open->last_end = end;
}

/// Until the first phase it is the wait for it.
void Recorder::show_last_phase(const Open& open) {
  if (timeline_ == nullptr || open.track == 0) return;
  Span span;
  span.kind = Span::Kind::phase;
  span.track = open.track;
  span.what = open.any ? name_of(open.last) : "WAIT";
  span.begin = open.last_begin;
  span.end = open.last_end;
  timeline_->push(std::move(span));
}

void Recorder::batch_done(std::uint64_t batch, TimePoint now) {
  Open* const open = find(batch);
  if (open == nullptr) return;
  const std::uint64_t all = nanoseconds(now - open->started);
  counters_.execution.add(all);
  if (open->any) {
    std::uint64_t spent = 0;
    const std::array<Distribution*, 3> distributions{&counters_.packing, &counters_.reducing,
                                                     &counters_.unpacking};
    for (const Phase phase : {Phase::pack, Phase::reduce, Phase::unpack}) {
      const auto place = static_cast<std::size_t>(phase);
      const auto its = static_cast<std::uint64_t>(open->spent[place]);
      if (its == 0) continue;
      spent += its;
      distributions[place]->add(its);
      events_.push({.time = now,
                    .batch = batch,
                    .count = its,
                    .set = static_cast<std::uint32_t>(open->batch.set),
                    .kind = kind_of(phase),
                    .type = open->batch.type,
                    .dtype = open->batch.dtype});
    }
    counters_.waiting.add(all - std::min(all, spent));
    show_last_phase(*open);
  }
  if (timeline_ && open->track != 0) {
    Span span;
    span.kind = Span::Kind::batch_end;
    span.end = now;
    span.track = open->track;
    timeline_->push(std::move(span));
    batch_tracks_.give_back(open->track - first_batch_track);
  }
  open_.erase(open_.begin() + (open - open_.data()));
}

// ---- the session ----

void Recorder::note(EventKind kind, const std::string& text, TimePoint now, std::uint64_t count) {
  events_.push({.time = now, .count = count, .kind = kind});
  if (!text.empty()) {
    if (notes_.size() == most_notes) notes_.pop_front();
    notes_.push_back({now, kind, text});
  }
  if (timeline_ == nullptr) return;
  Span span;
  span.kind = Span::Kind::instant;
  span.begin = now;
  span.track = session_track;
  span.what = diagnostics::to_string(kind).data();
  span.text = std::make_shared<const std::string>(text);
  timeline_->push(std::move(span));
}

// ---- the timeline ----

void Recorder::set_timeline(std::shared_ptr<Timeline> timeline) {
  // What is open now was not begun in the next one, if there is one.
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
        named && named_tracks_ < most_named_tracks ? first_named_track + named_tracks_++ : 0;
  }
  tag.timeline = timeline_number_;
  tag.track = entry.track != 0 ? entry.track : first_shared_track + shared_tracks_.take();
}

void Recorder::show(const Tag& tag, const Descriptor& descriptor, std::uint64_t batch,
                    TimePoint agreed, TimePoint now, bool failed) {
  if (timeline_ == nullptr || tag.timeline != timeline_number_) return;
  if (tag.track < first_named_track) shared_tracks_.give_back(tag.track - first_shared_track);
  Span span;
  span.kind = Span::Kind::operation;
  span.begin = tag.submitted;
  span.agreed = agreed;
  span.end = now;
  span.batch = batch;
  span.bytes = tag.bytes;
  span.text = names_[tag.name].text;
  span.track = tag.track;
  span.set = names_[tag.name].set;
  span.type = descriptor.type;
  span.dtype = dtype_of(descriptor);
  span.failed = failed;
  timeline_->push(std::move(span));
}

}  // namespace kolo::diagnostics
