// What the driver does is recorded: the bridge from operations and batches to src/diagnostics.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "diagnostics/flight_record.hpp"
#include "diagnostics/record_signal.hpp"
#include "diagnostics/recorder.hpp"
#include "session/operation_queue.hpp"

namespace kolo::session {

struct RecordingOptions {
  std::int64_t events = 4096;   // that are kept; 0: none
  std::string directory = ".";  // where records of faults go; off: nowhere
  int signal = 0;               // asks for a record; 0: none does
  std::string statistics{};     // where they go at the end, a path or stderr; "": nowhere
};

/// By who holds the driver's token, but for `statistics`.
class Recording : private backend::PhaseObserver {
 public:
  using TimePoint = diagnostics::TimePoint;
  using Pending = std::vector<diagnostics::PendingOperation>;

  Recording(const RecordingOptions& options, std::uint64_t session, int rank, int size);

  /// First of all.
  void submitted(detail::Operation& operation, TimePoint now);
  /// Answered otherwise than by a batch. Before it is told so.
  void ended(const detail::Operation& operation, bool failed, TimePoint now);

  /// The batch is given an observer if its phases are of interest.
  void started(backend::Batch& batch, std::int64_t set,
               const std::vector<detail::Operation*>& operations, TimePoint now);
  /// Before its operations are told so.
  void done(std::uint64_t batch, const std::vector<detail::Operation*>& operations, TimePoint now);

  void plans(std::uint64_t begun, std::uint64_t batches, bool live, TimePoint now);
  void sent(std::size_t bytes);
  void received(std::size_t bytes);
  void woke() { recorder_.counters().wakes.add(); }
  void note(diagnostics::EventKind kind, const std::string& text, TimePoint now) {
    recorder_.note(kind, text, now);
  }

  /// True before the first fault, if it is to be written down: `fault` wants what is pending then.
  [[nodiscard]] bool expects_fault() const { return writes_faults_ && !had_fault_; }
  /// Something went wrong that is no matter of a single operation. The first one is written down.
  void fault(diagnostics::EventKind kind, const std::string& text, const Pending& pending,
             TimePoint now);

  /// True if a user asked for a record by signal since this was asked last.
  [[nodiscard]] bool asked_by_signal() { return signal_.came(); }
  void write_asked_for(const Pending& pending);
  /// `""`: the path that records of faults have. Returns it. Throws InvalidArgument.
  std::string write(const std::string& path, const std::string& reason,
                    const Pending& pending) const;

  void set_timeline(std::shared_ptr<diagnostics::Timeline> timeline) {
    recorder_.set_timeline(std::move(timeline));
  }
  [[nodiscard]] const std::shared_ptr<diagnostics::Timeline>& timeline() const {
    return recorder_.timeline();
  }

  /// Thread-safe.
  [[nodiscard]] Statistics statistics() const { return recorder_.statistics(); }

  /// The session is over: ends the timeline, and writes the statistics.
  void end();

 private:
  void on_phase(std::uint64_t batch, backend::Phase phase, TimePoint begin, TimePoint end) override;
  void write_or_warn(const std::string& reason, const Pending& pending) const;

  std::uint64_t session_;
  int rank_;
  int size_;
  std::string directory_;
  std::string statistics_path_;
  bool writes_faults_;
  bool had_fault_ = false;
  bool in_plan_ = false;
  diagnostics::Recorder recorder_;
  diagnostics::RecordSignal signal_;
};

}  // namespace kolo::session
