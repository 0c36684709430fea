// What the driver tells of: it goes into the flight record, the statistics and the timeline.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/activity.hpp"
#include "base/descriptor.hpp"
#include "diagnostics/counters.hpp"
#include "diagnostics/event.hpp"
#include "diagnostics/event_ring.hpp"
#include "diagnostics/names.hpp"
#include "diagnostics/timeline.hpp"

namespace kolo::diagnostics {

/// What the recorder remembers of an operation: it lies with the operation until that is done.
struct Tag {
  TimePoint submitted{};
  std::uint64_t count = 0;  // as Event's
  std::uint32_t name = no_name;
  std::uint32_t round = 0;
  std::uint32_t track = 0;  // of the timeline with this number
  std::uint32_t timeline = 0;
  std::int64_t bytes = 0;
};

/// An operation as it is submitted. A name, or a number.
struct Subject {
  std::string_view name{};  // "": none
  std::uint64_t number = 0;
  std::int64_t set = 0;
  std::int64_t bytes = 0;
  const Descriptor& descriptor;
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

/// By who holds the driver's token, but for `statistics`, which anybody may read. Where nothing but
/// the flight record and the counters are kept, an operation costs some ten nanoseconds, no
/// allocation once its name is known, and no look at the clock.
class Recorder {
 public:
  /// `events` are kept for the flight record. `measures`: phases are counted even without a
  /// timeline.
  explicit Recorder(std::size_t events, bool measures = false);

  // An operation: submitted, then either finished in a batch or failed.
  [[nodiscard]] Tag submitted(const Subject& subject, TimePoint now);
  void finished(const Tag& tag, const Descriptor& descriptor, std::uint64_t batch, TimePoint agreed,
                TimePoint now);
  /// Answered by a number, without a batch.
  void answered(const Tag& tag, const Descriptor& descriptor, TimePoint now);
  void failed(const Tag& tag, const Descriptor& descriptor, TimePoint now);

  // A batch. The tags are of its operations.
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
  void phase(std::uint64_t batch, Phase phase, TimePoint begin, TimePoint end);
  void batch_done(std::uint64_t batch, TimePoint now);
  struct Started {
    TimePoint time{};
    std::int64_t bytes = 0;
  };
  /// Of a batch that is not done.
  [[nodiscard]] Started started(std::uint64_t batch);
  /// True if batches that start now should tell of their phases.
  [[nodiscard]] bool wants_phases() const { return measures_ || timeline_ != nullptr; }

  /// Something that happened to the session. `text` is kept for the record.
  void note(EventKind kind, const std::string& text, TimePoint now, std::uint64_t count = 0);
  /// All ranks have joined: operations are counted from the start.
  void joined() { ++round_; }

  // Null: no timeline.
  void set_timeline(std::shared_ptr<Timeline> timeline);
  [[nodiscard]] const std::shared_ptr<Timeline>& timeline() const { return timeline_; }

  [[nodiscard]] Counters& counters() { return counters_; }
  [[nodiscard]] Statistics statistics() const { return counters_.read(); }

  struct Note {
    TimePoint time;
    EventKind kind;
    std::string text;
  };
  [[nodiscard]] const EventRing& events() const { return events_; }
  [[nodiscard]] const Names& names() const { return names_; }
  [[nodiscard]] const std::deque<Note>& notes() const { return notes_; }

 private:
  /// A batch that has started.
  struct Open {
    Batch batch;
    TimePoint started;
    std::uint32_t track = 0;  // 0: it is not in the timeline
    Phase last = Phase::pack;
    TimePoint last_begin{};
    TimePoint last_end{};  // of phases so far
    bool any = false;
    std::array<std::int64_t, 3> spent{};  // nanoseconds of each phase
  };

  [[nodiscard]] Event event_of(EventKind kind, const Tag& tag, const Descriptor& descriptor,
                               TimePoint now) const;
  Open* find(std::uint64_t batch);
  void give_track(Tag& tag, Names::Entry& entry, bool named);
  void show(const Tag& tag, const Descriptor& descriptor, std::uint64_t batch, TimePoint agreed,
            TimePoint now, bool failed);
  void show_last_phase(const Open& open);

  EventRing events_;
  Names names_;
  Counters counters_{};
  std::deque<Note> notes_{};
  std::vector<Open> open_{};
  std::uint32_t round_ = 0;
  bool measures_;
  std::shared_ptr<Timeline> timeline_{};
  std::uint32_t timeline_number_ = 0;
  std::uint32_t named_tracks_ = 0;
  TrackPool shared_tracks_{};
  TrackPool batch_tracks_{};
};

}  // namespace kolo::diagnostics
