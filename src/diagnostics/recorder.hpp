// SPDX-License-Identifier: Apache-2.0
// What a session did: it goes into the flight record, the statistics and the timeline.
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
  std::size_t events = 0;       // kept for the flight record
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
  std::uint64_t count = 0;  // as in Event
  std::uint32_t name = no_name;
  std::uint32_t round = 0;
  std::uint64_t losses = 0;  // the name table's: `name` is valid until that number grows
  std::uint32_t track = 0;   // of the timeline with this number
  std::uint32_t timeline = 0;
  std::int64_t bytes = 0;
  OperationType type = OperationType::barrier;
  DType dtype = DType::u8;  // of the first tensor
};

/// An operation as it is submitted. A name, or a number.
struct Subject {
  std::string_view name{};  // "": none
  std::uint64_t number = 0;
  std::int64_t set = 0;
  std::int64_t bytes = 0;
  const Descriptor& descriptor;
};

/// An operation that is not done.
struct PendingOperation {
  Tag tag;
  const Descriptor* descriptor = nullptr;
  bool executing = false;   // else it is negotiated
  std::uint64_t batch = 0;  // if it is executing
};

/// Gives out the lowest number that is free.
class TrackPool {
 public:
  [[nodiscard]] std::uint32_t take();
  void give_back(std::uint32_t track) { taken_[track] = false; }
  void clear() { taken_.clear(); }

 private:
  std::vector<bool> taken_{};
};

/// Called by the driver only; any thread may call `statistics`. If only the flight record and the
/// counters are kept, an operation costs about ten nanoseconds, no allocation once its name is
/// known, and no clock read.
class Recorder : public PhaseObserver {
 public:
  using Pending = std::vector<PendingOperation>;

  explicit Recorder(RecorderOptions options);

  // ---- operations: submitted, then finished in a batch, answered or failed ----

  /// Before anything else of the operation. `previous`: of an earlier operation with the same name
  /// and set, which saves the lookup of the name; or new.
  [[nodiscard]] Tag submitted(const Subject& subject, TimePoint now, const Tag& previous = {});
  /// The operation of this tag, which has a name, is submitted once more, with nothing changed.
  /// False if its name was forgotten: then nothing is done, and `submitted` is to be called.
  [[nodiscard]] bool submitted_again(Tag& tag, TimePoint now);
  struct BatchTimes {
    TimePoint agreed{};
    TimePoint done{};
  };
  void finished(const Tag& tag, std::uint64_t batch, const BatchTimes& times);
  /// Answered by a number, without a batch. When all ranks have joined, counting begins anew.
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
  /// Of a batch that has started.
  void on_phase(std::uint64_t batch, Phase phase, TimePoint begin, TimePoint end) override;
  /// Of a batch that is done now. `pass` is the beginning of the driver's pass: it stands for the
  /// end of a small batch, which is not worth a clock read.
  [[nodiscard]] BatchTimes times_of(std::uint64_t batch, TimePoint pass);
  /// After its operations have finished.
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
  /// How many plans have begun, how many batches came from plans, and whether one is live.
  void plans(std::uint64_t begun, std::uint64_t batches, bool live, TimePoint now);
  /// Something that happened to the session. `text` is kept for the flight record.
  void note(EventKind kind, const std::string& text, TimePoint now, std::uint64_t count = 0);

  /// Null: no timeline.
  void set_timeline(std::shared_ptr<Timeline> timeline);
  [[nodiscard]] const std::shared_ptr<Timeline>& timeline() const { return timeline_; }

  /// Thread-safe.
  [[nodiscard]] Statistics statistics() const { return counters_.read(); }

  /// The session is over: ends the timeline, and writes the statistics.
  void end();

  // ---- flight records; flight_record.cpp ----

  /// True before the first fault, if it is to be written down: `fault` wants what is pending then.
  [[nodiscard]] bool expects_fault() const {
    return options_.events > 0 && options_.directory != "off" && !had_fault_;
  }
  /// Something went wrong that is no matter of a single operation. Only the first one is written
  /// down: what follows is its consequence.
  void fault(EventKind kind, const std::string& text, const Pending& pending, TimePoint now);

  /// True if a signal has requested a record since the last call.
  [[nodiscard]] bool asked_by_signal() { return signal_.came(); }
  void write_asked_for(const Pending& pending) const;
  /// Puts the record in place of what is at `path` when it is whole; `""`: the path that records of
  /// faults have. Returns the path. Throws InvalidArgument if that cannot be done.
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
    std::uint32_t track = 0;  // 0: it is not in the timeline
    Phase last = Phase::pack;
    TimePoint last_begin{};
    TimePoint last_end{};  // of phases so far
    bool any = false;
    std::array<std::uint64_t, enumerator_count<Phase>> spent{};  // nanoseconds of each
    std::uint64_t before = 0;  // nanoseconds of phases before it started
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

/// The name of a flight record: all ranks of a session begin theirs alike.
[[nodiscard]] std::string flight_record_name(std::uint64_t session, int rank);

}  // namespace kolo::internal::diagnostics
