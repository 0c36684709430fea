// SPDX-License-Identifier: Apache-2.0
#include "backend/shm/pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace kolo::internal::backend::shm {
namespace {

// The maximum number of bytes to process in a step: about 100 us.
constexpr std::int64_t max_work = 1 << 20;

}  // namespace

Pipeline::Pipeline(Arena& arena, Batch batch, LocalRanks local_ranks,
                   const LocalRanks& counterparts)
    : arena_(arena),
      batch_(std::move(batch)),
      local_ranks_(std::move(local_ranks)),
      index_(
          static_cast<int>(std::ranges::find(local_ranks_, arena.index()) - local_ranks_.begin())),
      ranks_(batch_.ranks),
      all_(local_ranks_.size()),
      counterparts_(counterparts.size()),
      lane_(lane_of(batch_)),
      place_(arena.queue_up(lane_)) {
  std::iota(all_.begin(), all_.end(), 0);
  std::iota(counterparts_.begin(), counterparts_.end(), size());
  local_ranks_.insert(local_ranks_.end(), counterparts.begin(), counterparts.end());
  sources_ = readers_ = all_;
  readers_.insert(readers_.end(), counterparts_.begin(), counterparts_.end());
}

Pipeline::~Pipeline() {
  if (prepared_) arena_.give_up_place(lane_);
}

void Pipeline::prepare() {
  prepared_ = true;
  if (batch_.observer != nullptr) prepared_from_ = std::chrono::steady_clock::now();
  work_ = 0;
  while (work_ < max_work && can_deposit()) {
    deposit_next();
    // No bell is rung: ranks that sleep until the deposit is there are woken by `start_prepared`.
    arena_.counters(arena_.index(), lane_).prepared.publish({batch_.mark, deposited_});
  }
  if (batch_.observer != nullptr) prepared_until_ = std::chrono::steady_clock::now();
}

void Pipeline::start_prepared() {
  prepared_ = false;
  if (deposited_ == 0) return;
  publish(&Counters::deposited, deposited_, all_);
  if (batch_.observer != nullptr)
    batch_.observer->on_phase(batch_.sequence, Phase::pack, prepared_from_, prepared_until_);
}

Progress Pipeline::step() {
  if (!arena_.is_next(lane_, place_)) return Progress::waiting;
  if (prepared_) start_prepared();
  work_ = 0;
  bool moved = step_transfers();
  // Deposits that need no copy come first, since all other ranks wait for them. Then combine, since
  // others wait for the results; then collect, which frees slots; then deposit more.
  while (work_ < max_work && (try_announce() || try_combine() || try_collect() || try_deposit()))
    moved = true;
  // No rank accesses another rank's tensors once it has combined its slice, so the batch can end
  // here. Slots belong to the lane: its next batch waits for their readers.
  if (all_begun_ && collected_ == deposited_) {
    std::vector<int> others;  // none if there were no pieces, since nothing was published
    for (const int rank : readers_)
      if (rank != index_ && collected_ > 0) others.push_back(local_rank(rank));
    arena_.leave(lane_, std::move(others), position(collected_));
    return Progress::done;
  }
  return moved ? Progress::moved : Progress::waiting;
}

bool Pipeline::try_combine() {
  for (std::uint64_t piece = combined_; piece < deposited_; ++piece) {
    const std::size_t number = number_of(piece);
    if (is_combined_[number]) continue;
    Progress progress = Progress::done;
    if (combines(number)) {
      if (!have(all_, &Counters::deposited, piece + 1)) return false;
      PhaseTimer timer(batch_, Phase::reduce);
      progress = combine(number);
      if (progress == Progress::waiting) timer.discard();
    }
    if (progress == Progress::waiting) continue;
    is_combined_[number] = progress == Progress::done;
    publish_combined();
    return true;
  }
  return false;
}

/// Pieces may be combined out of order, but a counter includes all earlier pieces.
void Pipeline::publish_combined() {
  for (; combined_ < deposited_; ++combined_) {
    const std::size_t number = number_of(combined_);
    if (!std::exchange(is_combined_[number], false)) return;
    if (combines(number)) publish(&Counters::combined, combined_ + 1, all_);
  }
}

bool Pipeline::try_collect() {
  if (collected_ == combined_) return false;
  const std::size_t number = number_of(collected_);
  if (combines(number) ? !have(all_, &Counters::combined, collected_ + 1)
                       : !have(sources_, &Counters::deposited, collected_ + 1))
    return false;
  {
    const PhaseTimer timer(batch_, collecting(number));
    collect(number);
  }
  ++collected_;
  publish(&Counters::collected, collected_, readers_);
  return true;
}

bool Pipeline::can_deposit() {
  if (all_begun_ || deposited_ - collected_ == window_) return false;
  if (!begun_) {
    const NextPiece next = begin(number_of(deposited_));
    all_begun_ = next == NextPiece::none;
    begun_ = next == NextPiece::piece;
    if (!begun_) return false;
  }
  // All readers must be done with the previous content of the place: the ranks of this batch or,
  // for the first pieces, those of the previous batch in the lane, which may be other ranks.
  const std::uint64_t ahead = max_ahead();
  return deposited_ - collected_ < ahead &&
         (deposited_ < ahead ? arena_.is_free(lane_)
                             : have(readers_, &Counters::collected, deposited_ - ahead + 1));
}

std::uint64_t Pipeline::max_ahead() const {
  return uses_slot(number_of(deposited_)) ? slot_count : window_;
}

void Pipeline::deposit_next() {
  PhaseTimer timer(batch_, Phase::pack);
  if (prepared_) timer.discard();
  deposit(number_of(deposited_));
  ++deposited_;
  begun_ = false;
}

bool Pipeline::try_announce() {
  const std::uint64_t before = deposited_;
  while (can_deposit() && !uses_slot(number_of(deposited_))) deposit_next();
  if (deposited_ == before) return false;
  publish(&Counters::deposited, deposited_, all_);
  return true;
}

bool Pipeline::try_deposit() {
  if (!can_deposit()) return false;
  deposit_next();
  publish(&Counters::deposited, deposited_, all_);
  return true;
}

/// Acquire pairs with the release in `publish`: the other rank wrote or read the data before it
/// counted, and this rank reads or overwrites it afterwards.
bool Pipeline::has_reached(int rank, Counter counter, std::uint64_t pieces) const {
  const Counters& its = arena_.counters(local_rank(rank), lane_);
  if ((its.*counter).has_reached(position(pieces))) return true;
  return batch_.mark != 0 && counter == &Counters::deposited &&
         its.prepared.has_reached({batch_.mark, pieces});
}

bool Pipeline::have(const std::vector<int>& ranks, Counter counter, std::uint64_t pieces) const {
  return std::ranges::all_of(
      ranks, [&](int rank) { return rank == index_ || has_reached(rank, counter, pieces); });
}

Awaited Pipeline::lacking(const std::vector<int>& ranks, Counter counter, std::uint64_t pieces,
                          const char* verb) const {
  Awaited awaited;
  for (const int rank : ranks)
    if (!have({rank}, counter, pieces)) awaited.ranks.push_back(name_of(rank));
  awaited.what = fmt::format("to {} piece {}", verb, pieces - 1);
  return awaited;
}

bool Pipeline::is_last_reader() const {
  return size() == 2 || have(all_, &Counters::collected, collected_ + 1);
}

/// Reports the first obstacle to the progress of this rank.
Awaited Pipeline::waits_for() const {
  if (!arena_.is_next(lane_, place_)) return {{}, "the batch before it"};
  if (combined_ < deposited_ && !is_combined_[number_of(combined_)]) {
    Awaited deposits = lacking(all_, &Counters::deposited, combined_ + 1, "deposit");
    return deposits.ranks.empty() ? combining_waits_for() : deposits;
  }
  if (collected_ < combined_)
    return combines(number_of(collected_))
               ? lacking(all_, &Counters::combined, collected_ + 1, "reduce")
               : lacking(sources_, &Counters::deposited, collected_ + 1, "deposit");
  if (!begun_ && !all_begun_)
    if (Awaited transfers = beginning_waits_for(); !transfers.ranks.empty()) return transfers;
  const std::uint64_t ahead = begun_ ? max_ahead() : window_;
  if (deposited_ < ahead) return {{}, "readers of the batch before it"};
  return lacking(readers_, &Counters::collected, deposited_ - ahead + 1, "collect");
}

void Pipeline::publish_partial(std::size_t number) {
  publish(&Counters::reduced, piece_of(number) + 1, counterparts_);
}

bool Pipeline::have_partials(std::size_t number) const {
  return have(counterparts_, &Counters::reduced, piece_of(number) + 1);
}

Awaited Pipeline::lacking_partials() const {
  return lacking(counterparts_, &Counters::reduced, combined_ + 1,
                 "reduce its NUMA node's part of");
}

/// Release: this rank's reads and writes of the piece precede the count. Ranks that wait for the
/// count may sleep, so all are rung; a bell to which no thread listens costs one memory access.
void Pipeline::publish(Counter counter, std::uint64_t pieces, const std::vector<int>& to) {
  (arena_.counters(arena_.index(), lane_).*counter).publish(position(pieces));
  for (const int rank : to)
    if (rank != index_) arena_.ring(local_rank(rank));
}

Position Pipeline::position(std::uint64_t pieces) const { return {batch_.order(), pieces}; }

}  // namespace kolo::internal::backend::shm
