// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>

#include "base/log.hpp"
#include "base/process_limits.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::diagnostics {
namespace {

/// A batch with fewer bytes is taken to end at the beginning of the driver's pass.
constexpr std::int64_t min_timed_bytes = 64 << 10;

/// Phases of one kind that are closer to each other are shown as one.
constexpr std::chrono::microseconds gap{2};

struct PhaseInfo {
  EventKind event;
  const char* span;
  Distribution Counters::*times;
};
constexpr auto phases =
    std::to_array<PhaseInfo>({{EventKind::packing, "PACK", &Counters::packing},
                              {EventKind::reducing, "REDUCE", &Counters::reducing},
                              {EventKind::unpacking, "UNPACK", &Counters::unpacking}});
static_assert(phases.size() == enumerator_count<Phase>);

std::uint64_t nanoseconds(Clock::duration duration) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(
      0, std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count()));
}

/// The statistics file of a rank; "" if the rank writes none.
std::string statistics_file(const std::string& path, int rank) {
  return path == "stderr" ? "" : path_of_rank(path, rank);
}

std::string statistics_refusal(const std::string& file) {
  return fmt::format("the statistics \"{}\" cannot be written: {}", file, error_text(errno));
}

void write_statistics(const std::string& path, int rank, const Statistics& statistics) {
  const FileSizeErrors errors;
  if (path == "stderr") {
    std::cerr << fmt::format("[kolo rank {}] statistics\n{}", rank, to_string(statistics));
    return;
  }
  const std::string own = statistics_file(path, rank);
  if (own.empty()) return;
  std::ofstream file(own);
  if (file) file << statistics << std::flush;
  if (!file) log(LogLevel::warning, statistics_refusal(own));
}

}  // namespace

void require_writable_statistics(const std::string& path, int rank) {
  const std::string own = statistics_file(path, rank);
  if (own.empty()) return;
  const std::ofstream file(own, std::ios::app);  // keeps the statistics of an earlier session
  if (!file) throw InvalidArgument(statistics_refusal(own));
}

Recorder::Recorder(const Settings& settings, const RecordedRank& recorded)
    : rank_(recorded.rank),
      statistics_(settings.statistics),
      record_(settings, recorded),
      names_(record_.events().capacity()) {}

// ---- operations ----

Event Recorder::event_of(EventKind kind, const Tag& tag, TimePoint now) const {
  return {.time = now,
          .count = tag.count,
          .bytes = tag.bytes,
          .name = tag.name,
          .round = tag.round,
          .set = names_[tag.name].set,
          .kind = kind,
          .type = tag.type,
          .dtype = tag.dtype};
}

Tag Recorder::submitted(const Subject& subject, TimePoint now, const Tag& previous) {
  const Descriptor& descriptor = subject.descriptor;
  Tag tag{.count = subject.number,
          .bytes = subject.bytes,
          .type = descriptor.type,
          .dtype = descriptor.tensors.empty() ? DType::u8 : descriptor.tensors.front().dtype};
  // A name keeps its number until names are forgotten.
  const bool known = previous.name != no_name && previous.losses == names_.losses();
  tag.name = known ? previous.name
                   : names_.find(subject.name, static_cast<std::uint32_t>(subject.set),
                                 counters_.submitted.get() + 1);
  tag.losses = names_.losses();
  begin_operation(tag, !subject.name.empty(), subject.counts_steps, now);
  return tag;
}

bool Recorder::submitted_again(Tag& tag, TimePoint now) {
  if (tag.name == no_name || tag.losses != names_.losses()) return false;
  begin_operation(tag, /*named=*/true, /*counts_steps=*/true, now);
  return true;
}

void Recorder::begin_operation(Tag& tag, bool named, bool counts_steps, TimePoint now) {
  counters_.submitted.add();
  tag.submitted = now;
  // Compared first, to avoid the store: `event_of` may load `name` and `round` as one word, and a
  // load of a word of which half was just stored defeats store forwarding and stalls.
  if (tag.round != round_) tag.round = round_;
  Names::Entry& entry = names_[tag.name];
  entry.last_use = counters_.submitted.get();
  if (std::exchange(entry.round, round_) != round_) entry.submitted = 0;
  if (named) tag.count = entry.submitted;
  entry.submitted = tag.count + 1;
  ++entry.pending;
  pace_.submitted(tag.name, named && counts_steps, tag.bytes, now, waited_);
  if (timeline()) tracks_.begin_operation(tag, entry, named);
  record_.add(event_of(EventKind::submitted, tag, now));
}

void Recorder::end_operation(EventKind kind, const Tag& tag, std::uint64_t batch,
                             const BatchTimes& times) {
  Event event = event_of(kind, tag, times.done);
  event.batch = batch;
  record_.add(event);
  Names::Entry& entry = names_[tag.name];
  if (timeline()) tracks_.end_operation(tag, entry, batch, times, kind == EventKind::failed);
  --entry.pending;
}

void Recorder::finished(const Tag& tag, std::uint64_t batch, const BatchTimes& times) {
  Counters::OfType& its = counters_.by_type[static_cast<std::size_t>(tag.type)];
  its.operations.add();
  its.bytes.add(static_cast<std::uint64_t>(tag.bytes));
  counters_.negotiation.add(nanoseconds(times.agreed - tag.submitted));
  end_operation(EventKind::finished, tag, batch, times);
}

void Recorder::answered(const Tag& tag, TimePoint now) {
  counters_.by_type[static_cast<std::size_t>(tag.type)].operations.add();
  end_operation(EventKind::finished, tag, no_batch, {now, now});
  // After a join, all ranks count the operations of each name from 0 again.
  if (tag.type == OperationType::join) ++round_;
}

void Recorder::failed(const Tag& tag, TimePoint now) {
  counters_.failed.add();
  end_operation(EventKind::failed, tag, no_batch, {now, now});
}

// ---- batches ----

void Recorder::batch_started(const StartedBatch& batch, TimePoint now) {
  counters_.batches.add();
  counters_.batch_operations.add(batch.operations);
  counters_.batch_bytes.add(static_cast<std::uint64_t>(batch.bytes));
  record_.add({.time = now,
               .batch = batch.number,
               .count = batch.operations,
               .bytes = batch.bytes,
               .set = static_cast<std::uint32_t>(batch.set),
               .kind = EventKind::started,
               .type = batch.type,
               .dtype = batch.dtype});
  open_.push_back({.batch = batch,
                   .started = now,
                   .track = tracks_.begin_batch(batch, now),
                   .last_begin = now,
                   .last_end = now});
}

Recorder::Open* Recorder::find(std::uint64_t batch) {
  const auto found =
      std::ranges::find(open_, batch, [](const Open& one) { return one.batch.number; });
  return found == open_.end() ? nullptr : &*found;
}

BatchTimes Recorder::times_of(std::uint64_t batch, TimePoint pass) {
  const Open* const open = find(batch);
  if (open == nullptr) return {pass, pass};
  const bool timed = wants_phases() || open->batch.bytes >= min_timed_bytes;
  return {open->started, timed ? Clock::now() : pass};
}

void Recorder::on_phase(std::uint64_t batch, Phase phase, TimePoint begin, TimePoint end) {
  Open* const open = find(batch);
  if (open == nullptr) return;
  open->spent[static_cast<std::size_t>(phase)] += nanoseconds(end - begin);
  // Phases during the preparation of a batch precede its span in the timeline.
  if (begin < open->started) {
    open->before += nanoseconds(end - begin);
    return;
  }
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

void Recorder::batch_done(std::uint64_t batch, TimePoint now) {
  Open* const open = find(batch);
  if (open == nullptr) return;
  const std::uint64_t whole = nanoseconds(now - open->started);
  counters_.execution.add(whole);
  if (open->any) add_up_phases(*open, whole + open->before, now);
  tracks_.end_batch(open->track, now);
  open_.erase(open_.begin() + (open - open_.data()));
}

void Recorder::add_up_phases(const Open& open, std::uint64_t whole, TimePoint now) {
  std::uint64_t spent = 0;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const std::uint64_t its = open.spent[i];
    if (its == 0) continue;
    spent += its;
    (counters_.*phases[i].times).add(its);
    record_.add({.time = now,
                 .batch = open.batch.number,
                 .count = its,
                 .set = static_cast<std::uint32_t>(open.batch.set),
                 .kind = phases[i].event,
                 .type = open.batch.type,
                 .dtype = open.batch.dtype});
  }
  // The time outside of phases is spent waiting for other ranks.
  counters_.waiting.add(whole - std::min(whole, spent));
  show_last_phase(open);
}

// ---- the session ----

void Recorder::plans(std::uint64_t begun, std::uint64_t batches, bool live, TimePoint now) {
  counters_.plan_batches.set(batches);
  const bool begins = counters_.plans.get() != begun;
  if (!begins && live == in_plan_) return;
  counters_.plans.set(begun);
  if (in_plan_) note(EventKind::plan_ended, "", now, begun);
  if (begins) note(EventKind::plan_begun, "", now, begun);
  // The plan has begun and ended since the last call.
  if (begins && !live) note(EventKind::plan_ended, "", now, begun);
  in_plan_ = live;
}

void Recorder::note(EventKind kind, const std::string& text, TimePoint now, std::uint64_t count) {
  record_.add({.time = now, .count = count, .kind = kind});
  record_.add_note(kind, text, now);
  tracks_.add_note(kind, text, now);
}

void Recorder::set_timeline(std::shared_ptr<Timeline> timeline) {
  // The new timeline, if any, has no beginning of the batches that are open now.
  for (Open& open : open_) open.track = 0;
  tracks_.set(std::move(timeline));
}

void Recorder::end() {
  if (const auto ended = timeline()) {
    set_timeline(nullptr);
    if (const std::string error = ended->close(); !error.empty()) log(LogLevel::warning, error);
  }
  if (!statistics_.empty()) write_statistics(std::exchange(statistics_, ""), rank_, statistics());
}

/// Shows the latest phase. Before the first phase, this is the wait for it.
void Recorder::show_last_phase(const Open& open) {
  tracks_.add_phase(open.track,
                    open.any ? phases[static_cast<std::size_t>(open.last)].span : "WAIT",
                    open.last_begin, open.last_end);
}

// ---- flight records ----

void Recorder::fault(EventKind kind, const std::string& text, const Pending& pending,
                     TimePoint now) {
  note(kind, text, now);
  record_.write_fault(text, {names_, statistics(), pending});
}

void Recorder::write_asked_for(const Pending& pending) const {
  record_.write_asked_for({names_, statistics(), pending});
}

std::string Recorder::write(const std::string& path, const std::string& reason,
                            const Pending& pending) const {
  return record_.write(path, reason, {names_, statistics(), pending});
}

}  // namespace kolo::internal::diagnostics
