// Repeats an agreed cycle of batches without a message: a word per rank says how far it is.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
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
/// A rank publishes p + 1 when all its operations of the batches up to p are there, as the plan has
/// them. A batch runs when all ranks are past it. Any rank may stop at its own position: nobody can
/// run that batch then, so everybody stops in turn. When all have, the least position is where the
/// plan ended: all before it run on every rank, nothing from it on runs anywhere, and what is
/// pending goes back to negotiation.
class Replay {
 public:
  struct Options {
    PlanBoard* board = nullptr;
    int rank = 0;
    int ranks = 1;
    std::chrono::nanoseconds unmet_patience = std::chrono::seconds(1);
  };

  explicit Replay(const Options& options) : options_(options) {}

  /// A plan was begun and its end is not known yet.
  [[nodiscard]] bool live() const { return live_; }
  [[nodiscard]] bool stopping() const { return stopping_; }
  /// The last plan that was begun.
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }

  /// Begins the plan; no other is live. Its batches are numbered from `sequence` on. Throws
  /// ProtocolError.
  void begin(const PlanEntry& entry, std::uint64_t sequence, TimePoint now);

  /// This rank submits an operation while the plan is live. What is not the plan's stops it.
  void submit(Ticket ticket, const Key& key, const Descriptor& descriptor, TimePoint now);
  void stop() { stop_wanted_ = true; }

  /// Says how far this rank is, sees how far the others are, and adds the batches that can run:
  /// all if the plan ends, else at most `room`. Throws ProtocolError.
  void poll(TimePoint now, int room, std::vector<Execute>& executes);

  /// True once all ranks have stopped and what was to run has run: `end` is due.
  [[nodiscard]] bool over() const { return over_; }
  /// How many batches the plan has run.
  [[nodiscard]] std::uint64_t ran() const { return ran_; }
  [[nodiscard]] std::uint64_t passes() const { return ran_ / batches_.size(); }
  /// Ends the plan. What it did not execute, in the order of submission.
  [[nodiscard]] std::vector<Withdrawn> end();

  /// Submitted here and not executed yet.
  [[nodiscard]] bool pending() const { return pending_ > 0 || !held_.empty(); }
  /// True if a batch waits for other ranks only.
  [[nodiscard]] bool awaits_others() const { return live_ && (published_ > ran_ || stopping_); }
  /// The ranks that have not stopped, while this one has: the plan cannot end without them.
  [[nodiscard]] RankSet awaited() const;
  /// When the plan is given up if nothing happens until then; `poll` at that time.
  [[nodiscard]] TimePoint deadline() const;

 private:
  struct Item {
    Key key;                // as it comes next
    Descriptor descriptor;  // as it comes next
    std::uint64_t number_stride;
    std::int64_t step_stride;
    std::size_t batch;
    std::size_t follower;  // the item that was submitted after it the last time
    bool pending = false;
    Ticket ticket = 0;
    std::uint64_t order = 0;
  };
  struct Batch {
    std::size_t begin;    // of its items
    std::size_t missing;  // items that are not pending
    std::size_t items;
    Descriptor kind;
    std::chrono::nanoseconds usual;  // how long its last item is waited for
  };

  [[nodiscard]] Item* find(const Key& key);
  void hold(Ticket ticket, const Key& key, const Descriptor& descriptor);
  [[nodiscard]] Batch& batch_at(std::uint64_t position) {
    return batches_[position % batches_.size()];
  }
  void publish();
  bool advance(TimePoint now);
  void run_one(std::vector<Execute>& executes);
  [[nodiscard]] bool unpublished() const { return pending_ > published_items_; }

  Options options_;
  std::uint64_t epoch_ = 0;
  bool live_ = false;
  bool stop_wanted_ = false;
  bool stopping_ = false;  // this rank's word says so
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
  std::size_t pending_ = 0;          // items
  std::size_t published_items_ = 0;  // those of them in published batches
  TimePoint progress_at_{};          // something was published, or became pending behind nothing
  TimePoint met_at_{};               // a batch could run, or was published behind nothing
};

}  // namespace kolo::internal::negotiation
