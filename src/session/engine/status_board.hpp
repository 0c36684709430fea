// SPDX-License-Identifier: Apache-2.0
// The statuses of the ranks of this host, each on a page in shared memory.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "negotiation/wire/message.hpp"
#include "node/doorbell.hpp"
#include "node/status_page.hpp"

namespace kolo::internal::session {

/// Each rank writes its own page and reads the others. A rank that shares no memory has a board
/// with a private page, so that its callers need no special case.
class StatusBoard {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Seat {
    int rank;
    pid_t process;  // its number in this process's PID namespace
    node::StatusPage* page;
    const node::Doorbell* bell;
  };

  /// `seats`: the ranks that share memory, ascending; empty if this rank shares none. Their pages
  /// and bells outlive the board. `own`: this rank. `ranks`: the size of the world.
  StatusBoard(std::vector<Seat> seats, int own, int ranks);

  /// True if this rank is the lowest on the board, which reports for all of them.
  [[nodiscard]] bool is_lowest() const { return own_ == 0; }
  /// True if `rank` is on the board.
  [[nodiscard]] bool shows(int rank) const { return seat_of(rank) < seats_.size(); }

  /// Publishes the status of this rank. `submitted_at`: the time of its last submission.
  void publish(negotiation::RankStatus status, TimePoint now, TimePoint submitted_at);
  /// Publishes why this rank's session has ended. The reason stays readable after the process has
  /// ended. The first failure counts; it replaces a departure (`shut_down`), since other ranks may
  /// wait for batches that this rank has not executed. `alarm` makes them check at once.
  void publish_end(Failure why, bool alarm, TimePoint now);
  /// True if another rank has raised the alarm since the last call. `ended` then lists it.
  [[nodiscard]] bool take_alarm();

  /// The last status that each rank published, and the present state of its process.
  [[nodiscard]] std::vector<negotiation::RankStatus> read_all(TimePoint now) const;
  /// The same for one rank. If the rank is not on the board, the result holds only its number.
  [[nodiscard]] negotiation::RankStatus read_rank(int rank, TimePoint now) const;

  /// The other ranks whose session has ended. Cheap: reads only their flags.
  [[nodiscard]] std::vector<int> ended() const;
  /// The number of ranks that reported lately that they are blocked.
  [[nodiscard]] int blocked(TimePoint now) const;

  /// Call it after a pause of this process: no rank counts as silent since before `now`. The other
  /// ranks of the host may have been stopped too, and may resume a little later.
  void begin_anew(TimePoint now) { begun_.store(now, std::memory_order_relaxed); }

 private:
  [[nodiscard]] node::StatusPage& own_page() const { return *seats_[own_].page; }
  /// The index of the rank's seat, or the number of seats if the rank is not on the board.
  [[nodiscard]] std::size_t seat_of(int rank) const;
  [[nodiscard]] negotiation::RankStatus read(const Seat& seat, TimePoint now) const;
  void write(negotiation::RankStatus& status);

  std::unique_ptr<node::StatusPage> private_page_{};
  std::vector<Seat> seats_;
  std::size_t own_ = 0;
  int ranks_;
  bool was_idle_ = false;  // the last published status was idle, so another one need not be written
  std::optional<FailureKind> ended_{};
  // Relaxed: a reader in another thread, which describes ranks in words, may see an older value.
  std::atomic<TimePoint> begun_{};
};

}  // namespace kolo::internal::session
