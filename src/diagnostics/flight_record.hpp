// SPDX-License-Identifier: Apache-2.0
// The flight record: the last events and notes of a rank, and the file that they are written to.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/settings.hpp"
#include "diagnostics/event.hpp"
#include "diagnostics/names.hpp"
#include "diagnostics/record_signal.hpp"
#include "kolo/diagnostics.hpp"

namespace kolo::internal::diagnostics {

/// The rank of a session whose events are recorded.
struct RecordedRank {
  std::uint64_t session = 0;  // the same number on all ranks
  int rank = 0;
  int size = 1;
};

/// An operation that is not done.
struct PendingOperation {
  Tag tag;
  const Descriptor* descriptor = nullptr;
  bool executing = false;   // else it is negotiated
  std::uint64_t batch = 0;  // if it is executing
};

/// The state of the session that a record contains besides events and notes.
struct RecordedState {
  const Names& names;
  Statistics statistics;
  const std::vector<PendingOperation>& pending;
};

/// Keeps a rank's last events and notes, and writes the files. Called by the driver only.
class FlightRecord {
 public:
  FlightRecord(const Settings& settings, const RecordedRank& recorded);

  void add(const Event& event) { events_.push(event); }
  void add_note(EventKind kind, const std::string& text, TimePoint now);
  [[nodiscard]] const EventRing& events() const { return events_; }

  /// True until the first fault, if faults are to be written.
  [[nodiscard]] bool expects_fault() const {
    return events_.capacity() > 0 && directory_ != "off" && !had_fault_;
  }
  /// The session had a fault. Writes only the first one: later faults are its consequences.
  void write_fault(const std::string& reason, const RecordedState& state);

  /// True if a signal has requested a record since the last call.
  [[nodiscard]] bool asked_by_signal() { return signal_.came(); }
  void write_asked_for(const RecordedState& state) const;

  /// Writes the record, which replaces the file at `path` only when it is complete. An empty `path`
  /// means the path for faults. Returns the path. Throws InvalidArgument if the file cannot be
  /// written.
  std::string write(const std::string& path, const std::string& reason,
                    const RecordedState& state) const;

 private:
  struct Note {
    TimePoint time;
    EventKind kind;
    std::string text;
  };

  void write_or_warn(const std::string& reason, const RecordedState& state) const;
  [[nodiscard]] std::string default_path() const;

  RecordedRank recorded_;
  std::string directory_;
  EventRing events_;
  std::deque<Note> notes_{};
  RecordSignal signal_;
  bool had_fault_ = false;
};

/// The file name of a flight record. The names of all ranks of a session begin alike.
[[nodiscard]] std::string flight_record_name(std::uint64_t session, int rank);

}  // namespace kolo::internal::diagnostics
