// SPDX-License-Identifier: Apache-2.0
// Moves a batch piece by piece through the slots of its ranks.
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

/// For each piece, every rank deposits its part in its slot, or records where else it lies. If the
/// piece is reduced in slices, the rank combines its slice of all ranks' parts. Then it collects
/// the data that it needs from the slots. Several pieces are in progress at once, and a rank waits
/// for another only for data that it reads. All ranks have the same pieces.
///
/// Ranks are identified by their index in the batch's `ranks`, or in their group if only a group is
/// reduced here. Counterparts, the ranks of other groups with which this rank exchanges partial
/// results, have the indices that follow.
class Pipeline : public Execution {
 public:
  Pipeline(Arena& arena, Batch batch, LocalRanks local_ranks, const LocalRanks& counterparts = {});

  ~Pipeline() override;
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Deposits as much as possible before the first step, which may never come. Ranks that have
  /// begun the batch read the deposits. Requires that the lane is idle.
  void prepare();
  [[nodiscard]] Progress step() final;
  [[nodiscard]] Awaited waits_for() const final;

 protected:
  [[nodiscard]] const Batch& batch() const { return batch_; }
  [[nodiscard]] int index() const { return index_; }
  /// The number of ranks without counterparts.
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
  /// True if writes into that rank's tensors are forbidden. See WriteFence.
  [[nodiscard]] bool is_closed(int index) const {
    return arena_.fence().is_closed(local_rank(index));
  }
  /// Allows more pieces in progress than there are slots. Call it before the first step.
  void widen_window() { window_ = max_window; }
  /// Counts bytes that were computed or copied, to end the step in time.
  void worked(std::int64_t bytes) { work_ += bytes; }
  /// Sets the ranks of the world by index, for reports, if they are not the batch's ranks.
  void name_ranks(std::vector<int> ranks) { ranks_ = std::move(ranks); }
  /// The rank of the world with this index, for reports.
  [[nodiscard]] int name_of(int index) const { return ranks_[static_cast<std::size_t>(index)]; }
  /// In `collect`: true if this rank is the last to read the piece in another rank's slot. If
  /// several ranks finish at the same time, it may be false for all of them.
  [[nodiscard]] bool is_last_reader() const;
  /// Lets a piece be collected once the rank `index` has deposited it, without waiting for others.
  void collect_from(int index) { sources_ = {index}; }
  /// Announces that the partial result of this rank's slice of the piece is in its slot. Call it in
  /// the order of the pieces.
  void publish_partial(std::size_t number);
  /// True if all counterparts have published their partial results.
  [[nodiscard]] bool have_partials(std::size_t number) const;
  /// The counterparts whose partial results are missing, for the first piece that is not combined.
  [[nodiscard]] Awaited lacking_partials() const;
  /// True if the rank with this index on the host has deposited the first piece that is not
  /// combined.
  [[nodiscard]] bool has_deposited(int local_rank) const {
    return local_rank == arena_.index() ||
           arena_.counters(local_rank, lane_).deposited.has_reached(position(combined_ + 1));
  }

 private:
  using Counter = Counters::Counter Counters::*;

  // A piece in progress is identified by its number in the window, which it keeps until it is
  // collected.

  /// Plans the next piece. `later`: not known until another piece is collected or a transfer ends.
  virtual NextPiece begin(std::size_t number) = 0;
  /// The transfers that the next piece waits for, for reports.
  [[nodiscard]] virtual Awaited beginning_waits_for() const { return {}; }
  /// False if the piece needs no slot of this rank. Depositing it then takes no time.
  [[nodiscard]] virtual bool uses_slot(std::size_t /*number*/) const { return true; }
  virtual void deposit(std::size_t number) = 0;
  /// True if the piece is combined before it is collected.
  [[nodiscard]] virtual bool combines(std::size_t /*number*/) const { return false; }
  /// Called once all ranks have deposited, until it returns `done`. Pieces start in order, but a
  /// waiting piece does not keep the next from starting.
  [[nodiscard]] virtual Progress combine(std::size_t /*number*/) { return Progress::done; }
  virtual void collect(std::size_t number) = 0;
  /// The phase in which the time for collecting the piece is reported.
  [[nodiscard]] virtual Phase collecting(std::size_t /*number*/) const { return Phase::unpack; }
  /// The obstacle to combining when all ranks have deposited, for reports.
  [[nodiscard]] virtual Awaited combining_waits_for() const { return {}; }
  /// Advances other transfers that pieces wait for. True if there was progress.
  virtual bool step_transfers() { return false; }

  bool try_announce();
  bool try_combine();
  void publish_combined();
  bool try_collect();
  bool try_deposit();
  /// True if the next piece is planned and the place for its deposit is free.
  [[nodiscard]] bool can_deposit();
  /// The maximum lead over other ranks for a piece like the next one.
  [[nodiscard]] std::uint64_t max_ahead() const;
  void deposit_next();
  void start_prepared();
  /// True if this counter of another rank has reached `pieces`.
  [[nodiscard]] bool has_reached(int rank, Counter counter, std::uint64_t pieces) const;
  /// True if these counters of all `ranks` except this one have reached `pieces`.
  [[nodiscard]] bool have(const std::vector<int>& ranks, Counter counter,
                          std::uint64_t pieces) const;
  /// The ranks of the world whose counters have not reached `pieces`, for reports.
  [[nodiscard]] Awaited lacking(const std::vector<int>& ranks, Counter counter,
                                std::uint64_t pieces, const char* verb) const;
  /// Sets this rank's counter and wakes the ranks `to`, which may wait for it.
  void publish(Counter counter, std::uint64_t pieces, const std::vector<int>& to);
  [[nodiscard]] Position position(std::uint64_t pieces) const;
  [[nodiscard]] std::size_t number_of(std::uint64_t piece) const { return piece % window_; }
  /// The piece in progress that has this number.
  [[nodiscard]] std::uint64_t piece_of(std::size_t number) const {
    return collected_ + (number + window_ - number_of(collected_)) % window_;
  }
  /// The index on the host of a rank of the batch.
  [[nodiscard]] int local_rank(int index) const {
    return local_ranks_[static_cast<std::size_t>(index)];
  }

  Arena& arena_;
  Batch batch_;
  LocalRanks local_ranks_;    // followed by the counterparts
  int index_;                 // the index of this rank in `local_ranks_`
  std::vector<int> ranks_;    // ranks of the world by index
  std::vector<int> sources_;  // ranks whose deposits `collect` needs
  std::vector<int> all_;      // indices without counterparts
  std::vector<int> counterparts_;
  std::vector<int> readers_;  // ranks that read this rank's slots
  std::size_t lane_;
  std::uint64_t place_;    // the place in the lane's queue
  bool prepared_ = false;  // prepared, but not begun
  PhaseObserver::TimePoint prepared_from_{}, prepared_until_{};
  std::int64_t work_ = 0;
  // How many pieces this rank has deposited, combined and collected.
  std::uint64_t deposited_ = 0;
  std::uint64_t combined_ = 0;
  std::uint64_t collected_ = 0;
  std::size_t window_ = slot_count;
  std::array<bool, max_window> is_combined_{};  // by number; for pieces from `combined_` on
  bool begun_ = false;                          // the piece after the deposited ones is planned
  bool all_begun_ = false;
};

[[nodiscard]] inline std::size_t lane_of(const Batch& batch) { return batch.order() % lane_count; }

[[nodiscard]] std::unique_ptr<Execution> make_allreduce(Arena& arena, Batch batch,
                                                        const LocalRanks& local_ranks);
/// Deposits before the batch is certain to run. See Pipeline::prepare.
[[nodiscard]] std::unique_ptr<Execution> prepare_allreduce(Arena& arena, const Batch& batch,
                                                           const LocalRanks& local_ranks);
/// Reduces in levels, within and between these groups.
[[nodiscard]] std::unique_ptr<Execution> make_levelled_allreduce(Arena& arena, Batch batch,
                                                                 const LocalRanks& local_ranks,
                                                                 const Groups& groups);
/// With groups, it reduces in the order of a levelled allreduce.
[[nodiscard]] std::unique_ptr<Execution> make_reducescatter(Arena& arena, Batch batch,
                                                            LocalRanks local_ranks,
                                                            std::optional<Groups> groups);
[[nodiscard]] std::unique_ptr<Execution> make_adasum(Arena& arena, Batch batch,
                                                     LocalRanks local_ranks);
/// Creates an allgather or alltoall.
[[nodiscard]] std::unique_ptr<Execution> make_gather(Arena& arena, Batch batch,
                                                     LocalRanks local_ranks);
/// Creates a broadcast of tensors or of a text.
[[nodiscard]] std::unique_ptr<Execution> make_broadcast(Arena& arena, Batch batch,
                                                        LocalRanks local_ranks);

}  // namespace kolo::internal::backend::shm
