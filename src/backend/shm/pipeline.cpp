// SPDX-License-Identifier: Apache-2.0
#include "backend/shm/pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace kolo::internal::backend::shm {
namespace {

// Bytes in a step: about 100 us.
constexpr std::int64_t max_work = 1 << 20;

}  // namespace

Pipeline::Pipeline(Arena& arena, Batch batch, LocalRanks local_ranks)
    : arena_(arena),
      batch_(std::move(batch)),
      local_ranks_(std::move(local_ranks)),
      index_(
          static_cast<int>(std::ranges::find(local_ranks_, arena.index()) - local_ranks_.begin())),
      ranks_(batch_.ranks),
      all_(local_ranks_.size()),
      lane_(batch_.order() % lane_count),
      place_(arena.queue_up(lane_)) {
  std::iota(all_.begin(), all_.end(), 0);
  sources_ = all_;
}

Progress Pipeline::step() {
  if (!arena_.is_next(lane_, place_)) return Progress::waiting;
  work_ = 0;
  bool moved = step_transfers();
  // Combine first, since others wait for the results; then collect, which frees slots.
  while (work_ < max_work && (try_combine() || try_collect() || try_deposit())) moved = true;
  // Tensors that others read in place go back to their owner when the batch ends, so their readers
  // must be done. Slots belong to the lane: the next batch in it waits for their readers.
  if (all_begun_ && collected_ == deposited_ &&
      (!awaits_readers_ || have(all_, &Counters::collected, collected_))) {
    std::vector<int> others;  // none for a batch without pieces, which publishes nothing
    for (const int rank : all_)
      if (rank != index_ && collected_ > 0)
        others.push_back(local_ranks_[static_cast<std::size_t>(rank)]);
    arena_.leave(lane_, std::move(others), position(collected_));
    return Progress::done;
  }
  return moved ? Progress::moved : Progress::waiting;
}

bool Pipeline::try_combine() {
  for (std::uint64_t piece = combined_; piece < deposited_; ++piece) {
    const std::size_t slot = piece % slot_count;
    if (is_combined_[slot]) continue;
    Progress progress = Progress::done;
    if (combines(slot)) {
      if (!have(all_, &Counters::deposited, piece + 1)) return false;
      PhaseTimer timer(batch_, Phase::reduce);
      progress = combine(slot);
      if (progress == Progress::waiting) timer.discard();
    }
    if (progress == Progress::waiting) continue;
    is_combined_[slot] = progress == Progress::done;
    publish_combined();
    return true;
  }
  return false;
}

/// Pieces may be combined out of order, but a counter includes all pieces before it.
void Pipeline::publish_combined() {
  for (; combined_ < deposited_; ++combined_) {
    const std::size_t slot = combined_ % slot_count;
    if (!std::exchange(is_combined_[slot], false)) return;
    if (combines(slot)) publish(&Counters::combined, combined_ + 1);
  }
}

bool Pipeline::try_collect() {
  if (collected_ == combined_) return false;
  const std::size_t slot = collected_ % slot_count;
  if (combines(slot) ? !have(all_, &Counters::combined, collected_ + 1)
                     : !have(sources_, &Counters::deposited, collected_ + 1))
    return false;
  {
    const PhaseTimer timer(batch_, collecting(slot));
    collect(slot);
  }
  ++collected_;
  publish(&Counters::collected, collected_);
  return true;
}

bool Pipeline::try_deposit() {
  if (all_begun_ || deposited_ - collected_ == slot_count) return false;
  const std::size_t slot = deposited_ % slot_count;
  if (!begun_) {
    const NextPiece next = begin(slot);
    all_begun_ = next == NextPiece::none;
    if (next != NextPiece::piece) return all_begun_;
    begun_ = true;
  }
  // The previous content of the slot must have been read: by the ranks of this batch, or, for the
  // first pieces, by those of the batch before it in the lane, which may be other ranks.
  if (deposited_ < slot_count ? !arena_.is_free(lane_)
                              : !have(all_, &Counters::collected, deposited_ - slot_count + 1))
    return false;
  {
    const PhaseTimer timer(batch_, Phase::pack);
    deposit(slot);
  }
  ++deposited_;
  begun_ = false;
  publish(&Counters::deposited, deposited_);
  return true;
}

/// With acquire, the counterpart of `publish`: those ranks wrote, or read, the data before they
/// counted; this rank reads, or overwrites, it after.
bool Pipeline::have(const std::vector<int>& ranks, Counter counter, std::uint64_t pieces) const {
  const Position enough = position(pieces);
  return std::ranges::all_of(ranks, [&](int rank) {
    if (rank == index_) return true;
    const Counters& counters = arena_.counters(local_ranks_[static_cast<std::size_t>(rank)], lane_);
    return (counters.*counter).has_reached(enough);
  });
}

Awaited Pipeline::lacking(const std::vector<int>& ranks, Counter counter, std::uint64_t pieces,
                          const char* verb) const {
  Awaited awaited;
  for (const int rank : ranks)
    if (!have({rank}, counter, pieces))
      awaited.ranks.push_back(ranks_[static_cast<std::size_t>(rank)]);
  awaited.what = fmt::format("to {} piece {}", verb, pieces - 1);
  return awaited;
}

/// The first obstacle to the progress of this rank.
Awaited Pipeline::waits_for() const {
  if (!arena_.is_next(lane_, place_)) return {{}, "the batch before it"};
  if (combined_ < deposited_ && !is_combined_[combined_ % slot_count]) {
    Awaited deposits = lacking(all_, &Counters::deposited, combined_ + 1, "deposit");
    return deposits.ranks.empty() ? combining_waits_for() : deposits;
  }
  if (collected_ < combined_)
    return combines(collected_ % slot_count)
               ? lacking(all_, &Counters::combined, collected_ + 1, "reduce")
               : lacking(sources_, &Counters::deposited, collected_ + 1, "deposit");
  if (all_begun_) return lacking(all_, &Counters::collected, collected_, "read");
  if (deposited_ < slot_count) return {{}, "readers of the batch before it"};
  return lacking(all_, &Counters::collected, deposited_ - slot_count + 1, "collect");
}

/// With release: this rank's reads and writes of the piece come before the count. A rank that waits
/// for it may sleep, so all are rung; a bell whose owner does not listen costs one access to
/// memory.
void Pipeline::publish(Counter counter, std::uint64_t pieces) {
  (arena_.counters(arena_.index(), lane_).*counter).publish(position(pieces));
  for (const int rank : all_)
    if (rank != index_) arena_.ring(local_ranks_[static_cast<std::size_t>(rank)]);
}

Position Pipeline::position(std::uint64_t pieces) const { return {batch_.order(), pieces}; }

}  // namespace kolo::internal::backend::shm
