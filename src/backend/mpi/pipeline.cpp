#include "backend/mpi/pipeline.hpp"

#include <utility>

namespace kolo::backend::mpi {
namespace {

// Bytes in a step: about 100 us.
constexpr std::int64_t most_work = 1 << 20;

}  // namespace

Pipeline::Pipeline(Context& context, Batch batch, int index, std::size_t slots)
    : Collective(context, std::move(batch), index), slot_count_(slots) {}

Progress Pipeline::step() {
  work_ = 0;
  bool moved = exchange().step();
  moved |= advance_all();
  moved |= begin_more();
  if (all_begun_ && oldest_ == next_) return Progress::done;
  return moved ? Progress::moved : Progress::waiting;
}

bool Pipeline::advance_all() {
  bool moved = false;
  for (std::size_t piece = oldest_; piece < next_ && work_ < most_work; ++piece) {
    const std::size_t slot = piece % slot_count_;
    if (!busy_[slot]) continue;
    const Progress progress = advance(slot);
    moved |= progress != Progress::waiting;
    busy_[slot] = progress != Progress::done;
  }
  while (oldest_ < next_ && !busy_[oldest_ % slot_count_]) ++oldest_;
  return moved;
}

bool Pipeline::begin_more() {
  bool moved = false;
  while (!all_begun_ && next_ - oldest_ < slot_count_ && work_ < most_work) {
    all_begun_ = !begin(next_ % slot_count_);
    if (all_begun_) break;
    busy_[next_ % slot_count_] = true;
    ++next_;
    moved = true;
  }
  return moved;
}

}  // namespace kolo::backend::mpi
