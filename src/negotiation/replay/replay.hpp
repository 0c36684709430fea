// SPDX-License-Identifier: Apache-2.0
// Repeats an agreed cycle of batches without messages: each rank publishes its progress in one
// word.
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
  std::uint64_t order;  // of submission
  Ticket ticket;
  Key key;
  Descriptor descriptor;
};

/// One rank's part of a plan. Position p is batch p % n of the n batches, in pass p / n.
///
/// A rank publishes p + 1 when it has submitted all operations of the batches up to p, as the plan
/// lists them. A batch runs when all ranks have published a position beyond it. Any rank may stop
/// at its own position: that batch cannot run on any rank then, so all ranks stop in turn. When all
/// have stopped, the plan ended at the minimum of their positions: every rank runs all batches
/// before it and none from it on, and pending operations return to negotiation.
class Replay {
 public:
  struct Options {
    PlanBoard* board = nullptr;
    int rank = 0;
    int ranks = 1;
    std::chrono::nanoseconds unmet_patience = std::chrono::seconds(1);
    /// A plan stops there; less than what a word holds is for tests.
    std::uint64_t last_position = negotiation::last_position;
  };

  explicit Replay(const Options& options) : options_(options) {}

  /// True from `begin` until `end`.
  [[nodiscard]] bool live() const { return live_; }
  [[nodiscard]] bool stopping() const { return stopping_; }
  /// The last plan that was begun.
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }

  /// Begins a plan. Precondition: none is live. Its batches are numbered from `sequence` on. Throws
  /// ProtocolError for a plan that cannot be followed.
  void begin(const PlanEntry& entry, std::uint64_t sequence, TimePoint now);

  /// This rank submits an operation while the plan is live. An operation that the plan does not
  /// have next stops the plan. `version` as for `Negotiator::on_submit`.
  void submit(Ticket ticket, const Key& key, const Descriptor& descriptor, TimePoint now,
              std::uint64_t version = 0);
  void stop() { stop_wanted_ = true; }

  /// Publishes this rank's progress, reads the others', and adds the batches that can run: all of
  /// them if the plan ends, else at most `room`. Throws ProtocolError.
  void poll(TimePoint now, int room, std::vector<Execute>& executes);

  /// The next batch, once, if other ranks are not ready for it and this one is. The batch runs, or
  /// the plan ends before it.
  [[nodiscard]] std::optional<Execute> take_upcoming();
  /// The mark of the next batch; 0 if no plan is live.
  [[nodiscard]] std::uint64_t next_mark() const {
    return live_ ? to_word({epoch_, ran_ + 1, false}) : 0;
  }

  /// True once all ranks have stopped and all batches before the end have run: call `end`.
  [[nodiscard]] bool over() const { return over_; }
  /// How many batches the plan has run.
  [[nodiscard]] std::uint64_t ran() const { return ran_; }
  [[nodiscard]] std::uint64_t passes() const { return ran_ / batches_.size(); }
  /// Ends the plan. Returns the submissions that it did not execute, in their order.
  [[nodiscard]] std::vector<Withdrawn> end();

  /// True if an operation submitted here was not executed yet.
  [[nodiscard]] bool pending() const { return pending_ > 0 || !held_.empty(); }
  /// True if a batch waits for other ranks only.
  [[nodiscard]] bool awaits_others() const { return live_ && (published_ > ran_ || stopping_); }
  /// While this rank has stopped: the ranks that have not, without which the plan cannot end.
  [[nodiscard]] RankSet awaited() const;
  /// The time at which the plan is given up if nothing happens before; call `poll` then.
  [[nodiscard]] TimePoint deadline() const;

 private:
  /// In steady state only the members before the key are used, and they share a cache line.
  struct alignas(64) Item {
    std::uint32_t batch;
    std::uint32_t follower;     // the item that was submitted after it the last time
    std::uint64_t version = 0;  // of the last submission that was compared with it
    Ticket ticket = 0;
    std::uint64_t order = 0;
    std::int64_t step;  // as it comes next
    std::int64_t step_stride;
    std::uint64_t number_stride;
    bool pending = false;
    Key key;                // as it comes next
    Descriptor descriptor;  // as it comes next, but for the step
  };
  struct Batch {
    std::size_t begin;    // of its items
    std::size_t missing;  // items that are not pending
    std::size_t items;
    Descriptor kind;
    std::chrono::nanoseconds usual;  // how long its last item is waited for
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
  bool stopping_ = false;  // published
  bool over_ = false;
  std::vector<Batch> batches_{};
  std::vector<Item> items_{};
  std::unordered_map<std::string, std::size_t> named_{};
  std::vector<std::size_t> numbered_{};  // items without a name, by number
  std::uint64_t first_number_ = 0;       // of the first of them in the first pass
  std::size_t last_item_ = 0;            // that was submitted
  std::vector<Withdrawn> held_{};
  std::uint64_t next_order_ = 0;
  std::uint64_t first_sequence_ = 0;
  std::uint64_t published_ = 0;
  std::uint64_t ran_ = 0;
  std::uint64_t announced_ = 0;      // position after the batch that was upcoming last
  std::size_t pending_ = 0;          // items
  std::size_t published_items_ = 0;  // those of them in published batches
  TimePoint progress_at_{};          // of the last publication, or of the first submission after it
  TimePoint met_at_{};  // a batch could run, or this rank became ready for the next one
};

}  // namespace kolo::internal::negotiation
