// SPDX-License-Identifier: Apache-2.0
#include "backend/mpi/collective.hpp"

namespace kolo::internal::backend::mpi {
namespace {

// The maximum number of bytes to process in a step: about 100 us.
constexpr std::int64_t max_work = 1 << 20;

}  // namespace

Progress PiecewiseCollective::step() {
  work_ = 0;
  bool moved = exchange().step();
  moved |= advance_all();
  moved |= begin_more();
  if (all_begun_ && oldest_ == next_) return Progress::done;
  return moved ? Progress::moved : Progress::waiting;
}

bool PiecewiseCollective::advance_all() {
  bool moved = false;
  for (std::size_t piece = oldest_; piece < next_ && work_ < max_work; ++piece) {
    const std::size_t number = piece % max_under_way_;
    if (!busy_[number]) continue;
    const Progress progress = advance(number);
    moved |= progress != Progress::waiting;
    busy_[number] = progress != Progress::done;
  }
  // Pieces may end out of order. A number is reused only after all earlier pieces have ended too,
  // so that the next piece has the same number on all ranks.
  while (oldest_ < next_ && !busy_[oldest_ % max_under_way_]) ++oldest_;
  return moved;
}

bool PiecewiseCollective::begin_more() {
  bool moved = false;
  while (!all_begun_ && next_ - oldest_ < under_way_ && work_ < max_work) {
    const NextPiece next = begin(next_ % max_under_way_);
    all_begun_ = next == NextPiece::none;
    if (next != NextPiece::piece) break;
    busy_[next_ % max_under_way_] = true;
    ++next_;
    moved = true;
  }
  return moved;
}

void PiecewiseReduction::receive_versions(Versions& versions, std::int64_t bytes, int lane) {
  versions.bytes = bytes;
  versions.memory = size() > 1 ? exchange().take((size() - 1) * bytes) : nullptr;
  for_each_other([&](int, int from) {
    exchange().receive(rank_of(from), lane, version(versions, from), bytes, versions.receiving);
  });
}

reduction::Inputs PiecewiseReduction::in_rank_order(const Versions& versions,
                                                    const std::byte* own) {
  inputs_.clear();
  for (int from = 0; from < size(); ++from)
    inputs_.push_back(from == index() ? own : version(versions, from));
  return inputs_;
}

std::byte* PiecewiseReduction::version(const Versions& versions, int from) const {
  return versions.memory + (from < index() ? from : from - 1) * versions.bytes;
}

}  // namespace kolo::internal::backend::mpi
