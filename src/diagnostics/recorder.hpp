// SPDX-License-Identifier: Apache-2.0
// Records the events of a session for the flight record, the statistics and the timeline.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/activity.hpp"
#include "diagnostics/counters.hpp"
#include "diagnostics/flight_record.hpp"
#include "diagnostics/names.hpp"
#include "diagnostics/pace_meter.hpp"
#include "diagnostics/timeline.hpp"

namespace kolo::internal::diagnostics {

/// Throws InvalidArgument, with the system's reason, if this rank cannot write the statistics file
/// that the setting names. Creates the file.
void require_writable_statistics(const std::string& path, int rank);

/// An operation as it is submitted, with a name or a number.
struct Subject {
  std::string_view name{};  // "": none
  std::uint64_t number = 0;
  std::int64_t set = 0;
  std::int64_t bytes = 0;
  const Descriptor& descriptor;
  bool counts_steps = true;  // it is not an operation of Kolo's own, or without a name
};

/// Only the driver may call it, except `statistics`, which any thread may call. If only the flight
/// record and the counters are kept, an operation costs about ten nanoseconds, no allocation once
/// its name is known, and no clock read.
class Recorder : public PhaseObserver {
 public:
  using Pending = std::vector<PendingOperation>;

  explicit Recorder(const Settings& settings, const RecordedRank& recorded = {});

  // ---- operations: submitted, then finished in a batch, answered or failed ----

  /// Precedes every other call for the operation. `previous`, the tag of an earlier operation with
  /// the same name and set, saves the lookup of the name; it may be a default Tag.
  [[nodiscard]] Tag submitted(const Subject& subject, TimePoint now, const Tag& previous = {});
  /// The named operation of this tag is submitted once more, unchanged. Returns false, without any
  /// effect, if the name was forgotten; then call `submitted`.
  [[nodiscard]] bool submitted_again(Tag& tag, TimePoint now);
  void finished(const Tag& tag, std::uint64_t batch, const BatchTimes& times);
  /// The operation was answered by a number, without a batch. Once all ranks have joined, the
  /// counts of operations start anew.
  void answered(const Tag& tag, TimePoint now);
  void failed(const Tag& tag, TimePoint now);

  // ---- batches ----

  void batch_started(const StartedBatch& batch, TimePoint now);
  /// A phase of a batch that has started.
  void on_phase(std::uint64_t batch, Phase phase, TimePoint begin, TimePoint end) override;
  /// The times of a batch that is done now. `pass` is the beginning of the driver's pass; it serves
  /// as the end of a small batch, which is not worth a clock read.
  [[nodiscard]] BatchTimes times_of(std::uint64_t batch, TimePoint pass);
  /// Call after the operations of the batch have finished.
  void batch_done(std::uint64_t batch, TimePoint now);
  /// True if batches that start now should report their phases.
  [[nodiscard]] bool wants_phases() const { return timeline() != nullptr || !statistics_.empty(); }

  // ---- the session ----

  void sent(std::size_t bytes) {
    counters_.messages_sent.add();
    counters_.message_bytes_sent.add(bytes);
  }
  void received(std::size_t bytes) {
    counters_.messages_received.add();
    counters_.message_bytes_received.add(bytes);
  }
  void woke() { counters_.wakes.add(); }
  /// For how long the program has waited in Kolo so far. Precedes submissions.
  void waited(std::chrono::nanoseconds time) { waited_ = time; }
  /// As `PaceMeter::take`.
  [[nodiscard]] std::optional<PaceReport> take_pace() { return pace_.take(names_); }
  /// Updates the number of plans begun, the number of batches from plans, and whether a plan is
  /// live.
  void plans(std::uint64_t begun, std::uint64_t batches, bool live, TimePoint now);
  /// Records an event of the session. The flight record keeps `text`.
  void note(EventKind kind, const std::string& text, TimePoint now, std::uint64_t count = 0);

  /// A null timeline ends the recording of spans.
  void set_timeline(std::shared_ptr<Timeline> timeline);
  [[nodiscard]] const std::shared_ptr<Timeline>& timeline() const { return tracks_.timeline(); }

  /// Thread-safe.
  [[nodiscard]] Statistics statistics() const { return counters_.read(); }

  /// Ends the session: closes the timeline and writes the statistics.
  void end();

  // ---- flight records ----

  /// True until the first fault, if faults are to be written: only then does `fault` need the
  /// pending operations.
  [[nodiscard]] bool expects_fault() const { return record_.expects_fault(); }
  /// An event that concerns more than one operation. Only the first fault is written: later ones
  /// are its consequences.
  void fault(EventKind kind, const std::string& text, const Pending& pending, TimePoint now);

  /// True if a signal has requested a record since the last call.
  [[nodiscard]] bool asked_by_signal() { return record_.asked_by_signal(); }
  void write_asked_for(const Pending& pending) const;
  /// Writes the record, which replaces the file at `path` only when it is complete. An empty `path`
  /// means the path for faults. Returns the path. Throws InvalidArgument if the file cannot be
  /// written.
  std::string write(const std::string& path, const std::string& reason,
                    const Pending& pending) const;

  [[nodiscard]] const EventRing& events() const { return record_.events(); }

 private:
  /// A batch that has started.
  struct Open {
    StartedBatch batch;
    TimePoint started;
    std::uint32_t track = 0;  // 0: not shown in the timeline
    Phase last = Phase::pack;
    TimePoint last_begin{};
    TimePoint last_end{};  // the end of the latest phase
    bool any = false;
    std::array<std::uint64_t, enumerator_count<Phase>> spent{};  // nanoseconds of each phase
    std::uint64_t before = 0;  // nanoseconds of phases before the start
  };

  void begin_operation(Tag& tag, bool named, bool counts_steps, TimePoint now);
  [[nodiscard]] Event event_of(EventKind kind, const Tag& tag, TimePoint now) const;
  void end_operation(EventKind kind, const Tag& tag, std::uint64_t batch, const BatchTimes& times);
  Open* find(std::uint64_t batch);
  void add_up_phases(const Open& open, std::uint64_t whole, TimePoint now);
  void show_last_phase(const Open& open);

  int rank_;
  std::string statistics_;  // a path or "stderr", written at the end; "": none
  FlightRecord record_;
  Names names_;
  Counters counters_{};
  PaceMeter pace_{};
  std::chrono::nanoseconds waited_{};
  std::vector<Open> open_{};
  std::uint32_t round_ = 0;
  bool in_plan_ = false;
  TimelineTracks tracks_{};
};

}  // namespace kolo::internal::diagnostics
