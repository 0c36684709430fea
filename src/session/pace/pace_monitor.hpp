// SPDX-License-Identifier: Apache-2.0
// Collects the paces of all ranks, warns of stragglers and publishes the status of the job.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/pace.hpp"
#include "base/session_clock.hpp"
#include "base/settings.hpp"
#include "diagnostics/recorder.hpp"
#include "diagnostics/status_file.hpp"
#include "session/pace/straggler_search.hpp"
#include "transport/transport.hpp"

namespace kolo::internal::session {

/// Each rank reports its pace to its parent, with those of the ranks below it. The root finds
/// stragglers, warns, and writes the status file. Called by the driver.
class PaceMonitor {
 public:
  using TimePoint = SessionClock::TimePoint;

  struct Place {
    std::uint64_t session;
    int rank;
    int size;
    int parent;  // in the tree; -1: this rank is the root
  };

  /// The references outlive the object.
  PaceMonitor(const Settings& settings, const Place& place, transport::Transport& transport,
              diagnostics::Recorder& recorder, const SessionClock& clock);

  void receive(int child, PaceReport report) { below_[child] = {std::move(report), clock_.now()}; }

  /// Call it with the periodic checks until this rank leaves: afterwards the parent may be gone.
  /// `wait_in_words` names the operation that this rank has waited for, if it has for long.
  void check(const std::function<std::string()>& wait_in_words);

 private:
  void judge(const PaceReport& all);
  [[nodiscard]] PaceReport merged();

  diagnostics::Recorder& recorder_;
  transport::Transport& transport_;
  const SessionClock& clock_;
  Place place_;
  PaceReport own_;
  struct Received {
    PaceReport report{};
    TimePoint at{};
  };
  std::map<int, Received> below_{};     // by child
  TimePoint renewed_at_{};              // the end of the last window, as seen by a check
  std::chrono::nanoseconds between_{};  // two windows
  TimePoint reported_at_{};
  StragglerSearch search_;
  std::map<int, TimePoint> stragglers_{};            // when each rank was last one
  std::unique_ptr<diagnostics::StatusFile> file_{};  // null: none is asked for
};

}  // namespace kolo::internal::session
