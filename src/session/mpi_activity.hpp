// When MPI has to be called though nobody asks anything of it.
#pragma once

#include <mpi.h>

#include <chrono>

#include "backend/backend.hpp"

namespace kolo::session {

/// What a rank has sent may wait inside MPI for room in a socket even when its own part of a batch
/// is done, and moves only when MPI is called. So MPI is called for a while after the last batch:
/// often at first, then now and then, until who does not take it counts as lost. One thread at a
/// time.
class MpiActivity : public backend::ExecutionObserver {
 public:
  /// `afterwards`: for how long. 0: for ever.
  explicit MpiActivity(std::chrono::nanoseconds afterwards) : afterwards_(afterwards) {}

  void begin() override { ++batches_; }
  void end() override;

  /// True while batches are under way, and shortly after: who drives should look often.
  [[nodiscard]] bool lively() const { return batches_ > 0 || lively_; }
  /// Calls MPI, on any communicator, if it is time to.
  void look(MPI_Comm comm);

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  std::chrono::nanoseconds afterwards_;
  int batches_ = 0;
  bool owes_ = false;
  bool lively_ = false;
  TimePoint ended_at_{};
  TimePoint next_{};
};

}  // namespace kolo::session
