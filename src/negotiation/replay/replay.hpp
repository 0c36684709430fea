// SPDX-License-Identifier: Apache-2.0
// Repeats an agreed cycle of batches without messages. A rank publishes its progress in one word.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/key.hpp"
#include "negotiation/replay/board.hpp"
#include "negotiation/wire/actions.hpp"
#include "negotiation/wire/message.hpp"

namespace kolo::internal::negotiation {

/// A submission that a plan did not execute.
struct Withdrawn {
  std::uint64_t order;  // number of earlier submissions
  Ticket ticket;
  Key key;
  Descriptor descriptor;
};

/// One rank's part of a plan. Position p is batch p % n of the n batches, in pass p / n.
///
/// A rank publishes p + 1 when it has submitted all operations of the batches up to p, as the plan
/// lists them. A batch runs when all ranks have published a position beyond it. Any rank may stop
/// at its own position. The batch at that position cannot run on any rank then, so all other ranks
/// stop in turn. When all ranks have stopped, the plan ends at the minimum of their positions:
/// every rank runs exactly the batches before it, and pending operations return to negotiation.
class Replay {
 public:
  struct Options {
    PlanBoard* board = nullptr;
    int rank = 0;
    int ranks = 1;
    std::chrono::nanoseconds unmet_patience = std::chrono::seconds(1);
    /// The position at which a plan stops. Tests set a lower one than a word can hold.
    std::uint64_t last_position = negotiation::last_position;
  };

  explicit Replay(const Options& options) : options_(options) {}

  /// True from `begin` until `end`.
  [[nodiscard]] bool live() const { return live_; }
  [[nodiscard]] bool stopping() const { return stopping_; }
  /// The number of the last plan.
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }

  /// Begins a plan, whose batches are numbered from `sequence` on. Precondition: no plan is live.
  /// Throws ProtocolError for an invalid plan.
  void begin(const PlanEntry& entry, std::uint64_t sequence, TimePoint now);

  /// This rank submits an operation while the plan is live. An operation that the plan does not
  /// expect in this pass stops the plan. `version` is that of `Negotiator::on_submit`.
  void submit(Ticket ticket, const Key& key, const Descriptor& descriptor, TimePoint now,
              std::uint64_t version = 0);
  void stop() { stop_wanted_ = true; }

  /// Publishes this rank's progress, reads the progress of the others, and adds batches that can
  /// run: all of them if the plan is stopping, otherwise at most `room`. Throws ProtocolError.
  void poll(TimePoint now, int room, std::vector<Execute>& executes);

  /// The next batch, if this rank is ready for it but others are not; returned only once. Either it
  /// is the next batch that runs, or the plan ends before it.
  [[nodiscard]] std::optional<Execute> take_upcoming();
  /// The mark of the next batch; 0 if no plan is live.
  [[nodiscard]] std::uint64_t next_mark() const {
    return live_ ? to_word({epoch_, ran_ + 1, false}) : 0;
  }

  /// True once all ranks have stopped and all batches before the end have run. Then call `end`.
  [[nodiscard]] bool over() const { return over_; }
  /// The number of batches that the plan has run.
  [[nodiscard]] std::uint64_t ran() const { return ran_; }
  [[nodiscard]] std::uint64_t passes() const { return ran_ / batches_.size(); }
  /// Ends the plan. Returns the submissions that it did not execute, in the order of submission.
  [[nodiscard]] std::vector<Withdrawn> end();

  /// True if an operation submitted here was not executed yet.
  [[nodiscard]] bool pending() const { return pending_ > 0 || !held_.empty(); }
  /// True if a batch or the end of the plan waits for other ranks only.
  [[nodiscard]] bool awaits_others() const { return live_ && (published_ > ran_ || stopping_); }
  /// The ranks that keep the plan from ending: this rank has stopped, and they have not.
  [[nodiscard]] RankSet awaited() const;
  /// If nothing happens before this time, `poll` must be called then, and stops the plan.
  [[nodiscard]] TimePoint deadline() const;

 private:
  /// The members before the key fit into one cache line. In a steady state no others are used.
  struct alignas(64) Item {
    std::uint32_t batch;
    std::uint32_t follower;     // the item that was submitted next in the last pass
    std::uint64_t version = 0;  // the last version whose descriptor equaled the item's
    Ticket ticket = 0;
    std::uint64_t order = 0;
    std::int64_t step;  // expected in the next submission
    std::int64_t step_stride;
    std::uint64_t number_stride;
    bool pending = false;
    Key key;                // expected in the next submission
    Descriptor descriptor;  // expected in the next submission, apart from the step
  };
  struct Batch {
    std::size_t begin;    // index of its first item
    std::size_t missing;  // number of items that are not pending
    std::size_t items;
    Descriptor kind;
    std::chrono::nanoseconds usual;  // the usual time until its last item is submitted
  };

  [[nodiscard]] Item* find(const Key& key);
  [[nodiscard]] Item* find(const Key& key, const Descriptor& descriptor, std::uint64_t version);
  void hold(Ticket ticket, const Key& key, const Descriptor& descriptor);
  [[nodiscard]] Batch& batch_at(std::uint64_t position) {
    return batches_[position % batches_.size()];
  }
  void publish();
  bool advance(TimePoint now);
  [[nodiscard]] Execute next_batch();
  void run_one(std::vector<Execute>& executes);
  [[nodiscard]] bool unpublished() const { return pending_ > published_items_; }

  Options options_;
  std::uint64_t epoch_ = 0;
  bool live_ = false;
  bool stop_wanted_ = false;
  bool stopping_ = false;  // this rank has published that it stops
  bool over_ = false;
  std::vector<Batch> batches_{};
  std::vector<Item> items_{};
  std::unordered_map<std::string, std::size_t> named_{};
  std::vector<std::size_t> numbered_{};  // unnamed items, by number
  std::uint64_t first_number_ = 0;       // the lowest number of an unnamed item in the first pass
  std::size_t last_item_ = 0;            // the item that was submitted last
  std::vector<Withdrawn> held_{};
  std::uint64_t next_order_ = 0;
  std::uint64_t first_sequence_ = 0;
  std::uint64_t published_ = 0;
  std::uint64_t ran_ = 0;
  std::uint64_t announced_ = 0;      // position after the last batch that `take_upcoming` returned
  std::size_t pending_ = 0;          // number of pending items
  std::size_t published_items_ = 0;  // number of pending items in published batches
  TimePoint progress_at_{};          // the last publication, or the first submission after it
  TimePoint met_at_{};               // the last time when a batch could run, or when this rank
                                     // became ready for the next one
};

}  // namespace kolo::internal::negotiation
