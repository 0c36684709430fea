// SPDX-License-Identifier: Apache-2.0
// The status of the ranks of this host, each on its page in shared memory.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <vector>

#include "negotiation/wire/status.hpp"
#include "node/doorbell.hpp"
#include "node/status_page.hpp"

namespace kolo::internal::session {

class StatusBoard {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Seat {
    int rank;
    pid_t process;  // as seen here
    node::StatusPage* page;
    const node::Doorbell* bell;
  };

  /// `seats` are the ranks that share memory, ascending, and outlive the board; none: this rank
  /// keeps to itself. `own` is this rank, `ranks` the size of the world.
  StatusBoard(std::vector<Seat> seats, int own, int ranks);

  /// This rank is the lowest on the board: it reports for all of them.
  [[nodiscard]] bool is_lowest() const { return own_ == 0; }
  /// Whether `rank` is on the board.
  [[nodiscard]] bool shows(int rank) const { return seat_of(rank) < seats_.size(); }

  /// Publishes the status of this rank; `submitted_at` is the last time it submitted something.
  void publish(negotiation::RankStatus status, TimePoint now, TimePoint submitted_at);
  /// Publishes why this rank's session has ended; readable after its process is gone. `alarm` makes
  /// the other ranks check at once.
  void publish_end(Failure why, bool alarm, TimePoint now);
  /// True if another rank has raised the alarm since the last call: `ended` lists them.
  [[nodiscard]] bool take_alarm();

  /// The last status that each rank published, and the present state of its process.
  [[nodiscard]] std::vector<negotiation::RankStatus> read_all(TimePoint now) const;
  /// Of one rank, if it is on the board.
  [[nodiscard]] negotiation::RankStatus read_rank(int rank, TimePoint now) const;

  /// The other ranks whose session has ended. Reads their flags only.
  [[nodiscard]] std::vector<int> ended() const;
  /// The number of ranks that reported lately that they are blocked.
  [[nodiscard]] int blocked(TimePoint now) const;

 private:
  [[nodiscard]] node::StatusPage& own_page() const { return *seats_[own_].page; }
  /// The number of seats if the rank is not on the board.
  [[nodiscard]] std::size_t seat_of(int rank) const;
  [[nodiscard]] negotiation::RankStatus read(const Seat& seat, TimePoint now) const;
  void write(negotiation::RankStatus& status);

  std::unique_ptr<node::StatusPage> private_page_{};
  std::vector<Seat> seats_;
  std::size_t own_ = 0;
  int ranks_;
  bool was_idle_ = false;  // and so was the last status of this rank
  bool ended_ = false;
};

}  // namespace kolo::internal::session
