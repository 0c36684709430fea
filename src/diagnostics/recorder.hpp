// SPDX-License-Identifier: Apache-2.0
// Records the events of a session for the flight record, the statistics and the timeline.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/activity.hpp"
#include "diagnostics/counters.hpp"
#include "diagnostics/names.hpp"
#include "diagnostics/record_signal.hpp"
#include "diagnostics/timeline.hpp"

namespace kolo::internal::diagnostics {

struct RecorderOptions {
  std::uint64_t session = 0;  // the same on all ranks
  int rank = 0;
  int size = 1;
  std::size_t events = 0;       // how many events the flight record keeps
  std::string directory = ".";  // for flight records of faults; "off": none are written
  int signal = 0;               // requests a flight record; 0: none
  std::string statistics{};     // destination at the end: a path or "stderr"; "": none
};

/// Throws InvalidArgument, with the system's reason, if a rank cannot write the file that
/// `RecorderOptions::statistics` names. Creates it.
void require_writable_statistics(const std::string& path, int rank);

/// The recorder's data about an operation, stored in the operation until that is done.
struct Tag {
  TimePoint submitted{};
  std::uint64_t count = 0;  // `Event::count`
  std::uint32_t name = no_name;
  std::uint32_t round = 0;
  /// `Names::losses` at the lookup: `name` is valid until that number grows.
  std::uint64_t losses = 0;
  std::uint32_t track = 0;  // the operation's track in the timeline with the number `timeline`
  std::uint32_t timeline = 0;
  std::int64_t bytes = 0;
  OperationType type = OperationType::barrier;
  DType dtype = DType::u8;  // the dtype of the first tensor
};

/// An operation at its submission. It has a name or a number.
struct Subject {
  std::string_view name{};  // "": none
  std::uint64_t number = 0;
  std::int64_t set = 0;
  std::int64_t bytes = 0;
  const Descriptor& descriptor;
};

/// An operation that is not finished.
struct PendingOperation {
  Tag tag;
  const Descriptor* descriptor = nullptr;
  bool executing = false;   // false: it is still negotiated
  std::uint64_t batch = 0;  // valid if `executing`
};

/// Hands out the lowest free number.
class TrackPool {
 public:
  [[nodiscard]] std::uint32_t take();
  void give_back(std::uint32_t track) { taken_[track] = false; }
  void clear() { taken_.clear(); }

 private:
  std::vector<bool> taken_{};
};

/// Only the driver calls it; `statistics` may be called by any thread. If neither statistics nor a
/// timeline are written, an operation costs about ten nanoseconds, no clock read, and no allocation
/// once its name is known.
class Recorder : public PhaseObserver {
 public:
  using Pending = std::vector<PendingOperation>;

  explicit Recorder(RecorderOptions options);

  // ---- operations: submitted, then finished in a batch, answered or failed ----

  /// Precedes every other call for the operation. `previous`, the tag of an earlier operation with
  /// the same name and set, saves the lookup of the name; it may be a default Tag.
  [[nodiscard]] Tag submitted(const Subject& subject, TimePoint now, const Tag& previous = {});
  /// The named operation of this tag is submitted once more, unchanged. Returns false, without any
  /// effect, if the name was forgotten; then call `submitted`.
  [[nodiscard]] bool submitted_again(Tag& tag, TimePoint now);
  struct BatchTimes {
    TimePoint agreed{};
    TimePoint done{};
  };
  void finished(const Tag& tag, std::uint64_t batch, const BatchTimes& times);
  /// The operation was answered by a number, without a batch. Once all ranks have joined, the
  /// counts of operations start anew.
  void answered(const Tag& tag, TimePoint now);
  void failed(const Tag& tag, TimePoint now);

  // ---- batches ----

  struct Batch {
    std::uint64_t number = 0;
    std::int64_t set = 0;
    OperationType type = OperationType::barrier;
    DType dtype = DType::u8;
    std::size_t operations = 0;
    std::int64_t bytes = 0;
  };
  void batch_started(const Batch& batch, TimePoint now);
  /// Receives a phase of a started batch.
  void on_phase(std::uint64_t batch, Phase phase, TimePoint begin, TimePoint end) override;
  /// The times of a batch that is done now. `pass` is the beginning of the driver's pass; it serves
  /// as the end of a small batch, which is not worth a clock read.
  [[nodiscard]] BatchTimes times_of(std::uint64_t batch, TimePoint pass);
  /// Call after the operations of the batch have finished.
  void batch_done(std::uint64_t batch, TimePoint now);
  /// True if batches that start now should report their phases.
  [[nodiscard]] bool wants_phases() const {
    return timeline_ != nullptr || !options_.statistics.empty();
  }

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
  /// Updates the number of plans begun, the number of batches from plans, and whether a plan is
  /// live.
  void plans(std::uint64_t begun, std::uint64_t batches, bool live, TimePoint now);
  /// Records an event of the session. The flight record keeps `text`.
  void note(EventKind kind, const std::string& text, TimePoint now, std::uint64_t count = 0);

  /// A null timeline ends the recording of spans.
  void set_timeline(std::shared_ptr<Timeline> timeline);
  [[nodiscard]] const std::shared_ptr<Timeline>& timeline() const { return timeline_; }

  /// Thread-safe.
  [[nodiscard]] Statistics statistics() const { return counters_.read(); }

  /// Ends the session: closes the timeline and writes the statistics.
  void end();

  // ---- flight records; flight_record.cpp ----

  /// True until the first fault, if faults are to be recorded. Then `fault` needs the pending
  /// operations.
  [[nodiscard]] bool expects_fault() const {
    return options_.events > 0 && options_.directory != "off" && !had_fault_;
  }
  /// Records a fault of the session as a whole. Only the first one writes a flight record, since
  /// later ones are usually its consequences.
  void fault(EventKind kind, const std::string& text, const Pending& pending, TimePoint now);

  /// True if a signal has requested a record since the last call.
  [[nodiscard]] bool asked_by_signal() { return signal_.came(); }
  void write_asked_for(const Pending& pending) const;
  /// Writes the record, which replaces the file at `path` only when it is complete. An empty `path`
  /// means the path for faults. Returns the path. Throws InvalidArgument if the file cannot be
  /// written.
  std::string write(const std::string& path, const std::string& reason,
                    const Pending& pending) const;

  [[nodiscard]] const EventRing& events() const { return events_; }

 private:
  struct Note {
    TimePoint time;
    EventKind kind;
    std::string text;
  };
  /// A batch that has started.
  struct Open {
    Batch batch;
    TimePoint started;
    std::uint32_t track = 0;  // 0: not shown in the timeline
    Phase last = Phase::pack;
    TimePoint last_begin{};
    TimePoint last_end{};  // the end of the latest phase
    bool any = false;
    std::array<std::uint64_t, enumerator_count<Phase>> spent{};  // nanoseconds of each phase
    std::uint64_t before = 0;  // nanoseconds of phases before the start
  };

  void begin_operation(Tag& tag, bool named, TimePoint now);
  [[nodiscard]] Event event_of(EventKind kind, const Tag& tag, TimePoint now) const;
  void end_operation(EventKind kind, const Tag& tag, std::uint64_t batch, const BatchTimes& times);
  Open* find(std::uint64_t batch);
  void add_up_phases(const Open& open, std::uint64_t whole, TimePoint now);

  void give_track(Tag& tag, Names::Entry& entry, bool named);
  void show(const Tag& tag, std::uint64_t batch, const BatchTimes& times, bool failed);
  [[nodiscard]] std::uint32_t show_batch(const Batch& batch, TimePoint now);
  void show_last_phase(const Open& open);

  void write_or_warn(const std::string& reason, const Pending& pending) const;
  [[nodiscard]] std::string usual_path() const;

  RecorderOptions options_;
  EventRing events_;
  Names names_;
  RecordSignal signal_;
  Counters counters_{};
  std::deque<Note> notes_{};
  std::vector<Open> open_{};
  std::uint32_t round_ = 0;
  bool in_plan_ = false;
  bool had_fault_ = false;
  std::shared_ptr<Timeline> timeline_{};
  std::uint32_t timeline_number_ = 0;
  std::uint32_t named_tracks_ = 0;
  TrackPool shared_tracks_{};
  TrackPool batch_tracks_{};
};

/// The file name of a flight record. The names of all ranks of a session have a common prefix.
[[nodiscard]] std::string flight_record_name(std::uint64_t session, int rank);

}  // namespace kolo::internal::diagnostics
