// SPDX-License-Identifier: Apache-2.0
// Moves a batch through the ranks' slots piece by piece.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.hpp"
#include "backend/pieces.hpp"
#include "backend/shm/arena.hpp"
#include "backend/shm/groups.hpp"

namespace kolo::internal::backend::shm {

/// Every rank deposits its part of a piece in its slot, or says where else it lies; where a piece
/// is reduced in slices, it combines its slice of all ranks' parts; then it collects the data that
/// it needs from the slots. A few pieces are in progress at once, and a rank waits for another only
/// for data that it reads. All ranks have the same pieces.
///
/// The ranks that take part are known by their index in the batch's `ranks`. If only a group of
/// them is reduced here, then by their index in this group. Counterparts, the ranks of other groups
/// with which this rank exchanges partial results, have the indices that follow.
class Pipeline : public Execution {
 public:
  Pipeline(Arena& arena, Batch batch, LocalRanks local_ranks, const LocalRanks& counterparts = {});

  ~Pipeline() override;
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Before the first step, which may never come: deposits what it can. Ranks that have begun the
  /// batch read that. Precondition: the lane is idle.
  void prepare();
  [[nodiscard]] Progress step() final;
  [[nodiscard]] Awaited waits_for() const final;

 protected:
  [[nodiscard]] const Batch& batch() const { return batch_; }
  [[nodiscard]] int index() const { return index_; }
  /// Without counterparts.
  [[nodiscard]] int size() const { return static_cast<int>(all_.size()); }
  [[nodiscard]] std::int64_t piece_bytes() const { return arena_.piece_bytes(); }
  /// The rank's slot for the piece with this number in the window.
  [[nodiscard]] std::byte* memory(int index, std::size_t number) const {
    return arena_.slot(local_rank(index), lane_, number % slot_count);
  }
  [[nodiscard]] Deposit& deposit_of(int index, std::size_t number) const {
    return arena_.deposit(local_rank(index), lane_, number);
  }
  [[nodiscard]] std::span<std::byte> heap(int index) const {
    return arena_.heap(local_rank(index));
  }
  [[nodiscard]] Arena& arena() const { return arena_; }
  /// For writes into tensors of others.
  [[nodiscard]] bool is_closed(int index) const {
    return arena_.fence().is_closed(local_rank(index));
  }
  /// More pieces than there are slots may be in progress. Before the first step.
  void widen_window() { window_ = max_window; }
  /// Counts bytes that were computed or copied, so that a step ends in time.
  void worked(std::int64_t bytes) { work_ += bytes; }
  /// The ranks of the world, as they are known by their index, if they are not the batch's ranks.
  /// For reports.
  void name_ranks(std::vector<int> ranks) { ranks_ = std::move(ranks); }
  /// The rank of the world, for reports.
  [[nodiscard]] int name_of(int index) const { return ranks_[static_cast<std::size_t>(index)]; }
  /// In `collect`: true if no rank but this one still reads the piece in another rank's slot. False
  /// if several finish at once.
  [[nodiscard]] bool is_last_reader() const;
  /// Only the rank `index` must have deposited before a piece is collected.
  void collect_from(int index) { sources_ = {index}; }
  /// The partial result of this rank's slice of the piece is in its slot. Call it in the order of
  /// the pieces.
  void publish_partial(std::size_t number);
  /// True if those of all counterparts are.
  [[nodiscard]] bool have_partials(std::size_t number) const;
  /// The counterparts whose partial results are not there, for the first piece that is not
  /// combined.
  [[nodiscard]] Awaited lacking_partials() const;
  /// True if the rank with this index on the host has deposited that piece.
  [[nodiscard]] bool has_deposited(int local_rank) const {
    return local_rank == arena_.index() ||
           arena_.counters(local_rank, lane_).deposited.has_reached(position(combined_ + 1));
  }

 private:
  using Counter = Counters::Counter Counters::*;

  // Pieces in progress are known by their number in the window, which a piece keeps until it is
  // collected.

  /// Plans the next piece. `later`: unknown until another piece was collected, or a transfer ended.
  virtual NextPiece begin(std::size_t number) = 0;
  /// For reports: the transfers that the next piece waits for.
  [[nodiscard]] virtual Awaited beginning_waits_for() const { return {}; }
  /// False if no slot of this rank is needed for the piece. Then depositing it takes no time.
  [[nodiscard]] virtual bool uses_slot(std::size_t /*number*/) const { return true; }
  virtual void deposit(std::size_t number) = 0;
  /// True if the piece is combined before it is collected.
  [[nodiscard]] virtual bool combines(std::size_t /*number*/) const { return false; }
  /// Called once all have deposited, until it returns `done`. Pieces begin in their order; a piece
  /// that waits does not keep the next from beginning.
  [[nodiscard]] virtual Progress combine(std::size_t /*number*/) { return Progress::done; }
  virtual void collect(std::size_t number) = 0;
  /// The phase that collecting the piece is reported as.
  [[nodiscard]] virtual Phase collecting(std::size_t /*number*/) const { return Phase::unpack; }
  /// For reports: what combining waits for when all have deposited.
  [[nodiscard]] virtual Awaited combining_waits_for() const { return {}; }
  /// Advances other transfers that a piece waits for. True if there was progress.
  virtual bool step_transfers() { return false; }

  bool try_announce();
  bool try_combine();
  void publish_combined();
  bool try_collect();
  bool try_deposit();
  /// True if the next piece is planned, and the place of its deposit is free.
  [[nodiscard]] bool can_deposit();
  /// How far this rank may be ahead of others with a piece like the next one.
  [[nodiscard]] std::uint64_t max_ahead() const;
  void deposit_next();
  void start_prepared();
  /// True if this counter of another rank has reached `pieces`.
  [[nodiscard]] bool has_reached(int rank, Counter counter, std::uint64_t pieces) const;
  /// True if those of all `ranks` but this one have.
  [[nodiscard]] bool have(const std::vector<int>& ranks, Counter counter,
                          std::uint64_t pieces) const;
  /// The ranks of the world whose counters have not.
  [[nodiscard]] Awaited lacking(const std::vector<int>& ranks, Counter counter,
                                std::uint64_t pieces, const char* verb) const;
  /// Wakes these ranks, which wait for the counter.
  void publish(Counter counter, std::uint64_t pieces, const std::vector<int>& to);
  [[nodiscard]] Position position(std::uint64_t pieces) const;
  [[nodiscard]] std::size_t number_of(std::uint64_t piece) const { return piece % window_; }
  /// The reverse, of a piece in progress.
  [[nodiscard]] std::uint64_t piece_of(std::size_t number) const {
    return collected_ + (number + window_ - number_of(collected_)) % window_;
  }
  /// On the host, of a rank of the batch.
  [[nodiscard]] int local_rank(int index) const {
    return local_ranks_[static_cast<std::size_t>(index)];
  }

  Arena& arena_;
  Batch batch_;
  LocalRanks local_ranks_;    // and the counterparts
  int index_;                 // this rank's in `local_ranks_`
  std::vector<int> ranks_;    // of the world, as they are known by their index
  std::vector<int> sources_;  // ranks whose deposits are awaited
  std::vector<int> all_;      // without counterparts
  std::vector<int> counterparts_;
  std::vector<int> readers_;  // of this rank's slots: all, and the counterparts
  std::size_t lane_;
  std::uint64_t place_;    // in the lane's queue
  bool prepared_ = false;  // and not begun
  PhaseObserver::TimePoint prepared_from_{}, prepared_until_{};
  std::int64_t work_ = 0;
  // Numbers of pieces with which this rank has come so far.
  std::uint64_t deposited_ = 0;
  std::uint64_t combined_ = 0;
  std::uint64_t collected_ = 0;
  std::size_t window_ = slot_count;
  std::array<bool, max_window> is_combined_{};  // of pieces after those
  bool begun_ = false;                          // the piece after those deposited
  bool all_begun_ = false;
};

[[nodiscard]] inline std::size_t lane_of(const Batch& batch) { return batch.order() % lane_count; }

[[nodiscard]] std::unique_ptr<Execution> make_allreduce(Arena& arena, Batch batch,
                                                        const LocalRanks& local_ranks);
/// See Pipeline::prepare.
[[nodiscard]] std::unique_ptr<Execution> prepare_allreduce(Arena& arena, const Batch& batch,
                                                           const LocalRanks& local_ranks);
/// Among these groups.
[[nodiscard]] std::unique_ptr<Execution> make_levelled_allreduce(Arena& arena, Batch batch,
                                                                 const LocalRanks& local_ranks,
                                                                 const Groups& groups);
/// With groups, in the order of a levelled allreduce.
[[nodiscard]] std::unique_ptr<Execution> make_reducescatter(Arena& arena, Batch batch,
                                                            LocalRanks local_ranks,
                                                            std::optional<Groups> groups);
[[nodiscard]] std::unique_ptr<Execution> make_adasum(Arena& arena, Batch batch,
                                                     LocalRanks local_ranks);
/// Allgather and alltoall.
[[nodiscard]] std::unique_ptr<Execution> make_gather(Arena& arena, Batch batch,
                                                     LocalRanks local_ranks);
/// Of tensors or of a text.
[[nodiscard]] std::unique_ptr<Execution> make_broadcast(Arena& arena, Batch batch,
                                                        LocalRanks local_ranks);

}  // namespace kolo::internal::backend::shm
