// SPDX-License-Identifier: Apache-2.0
#include "backend/shm/sliced_allreduce.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "backend/shm/arena.hpp"
#include "base/dtype.hpp"
#include "fusion/pack.hpp"

namespace kolo::internal::backend::shm {
namespace {

/// Each rank reduces shorter pieces entirely, which takes one wait instead of two.
constexpr std::int64_t max_bytes_alone_of_each_rank = 2 << 10;

/// With more than `max_ranks_alone`, each rank reduces a piece entirely only if it is this short:
/// reading a few cache lines of each rank is cheaper than to sleep again until an owner, which may
/// sleep too, has reduced it.
constexpr std::int64_t max_bytes_alone_of_many = 256;
constexpr int max_many_alone = 64;

/// Shorter slices would cost more in messages than additional ranks save.
constexpr std::int64_t min_slice_bytes = 16 << 10;

/// Shorter parts are packed first, since reducing them one by one takes longer.
constexpr std::int64_t min_bytes_direct = 512;

bool converts(const Piece& piece) { return piece.dtype != piece.wire; }

/// True if each of so many ranks should reduce the piece entirely.
bool is_for_each_alone(const Piece& piece, int ranks) {
  if (ranks == 1) return true;
  if (converts(piece)) return false;
  return ranks <= max_ranks_alone
             ? piece.wire_bytes() <= ranks * max_bytes_alone_of_each_rank
             : ranks <= max_many_alone && piece.wire_bytes() <= max_bytes_alone_of_many;
}

bool has_long_parts(const Piece& piece) {
  return piece.parts.size() == 1 ||
         piece.wire_bytes() >= static_cast<std::int64_t>(piece.parts.size()) * min_bytes_direct;
}

/// Calls `consumer(part, first)` for each part of the piece that has elements of the slice.
template <typename Consumer>
void for_each_part(const Piece& piece, Slice slice, Consumer consumer) {
  const auto bytes = signed_size_of(piece.dtype);
  std::int64_t before = 0;
  for (const fusion::Part& part : piece.parts) {
    const std::int64_t first = std::max(slice.begin, before);
    const std::int64_t last = std::min(slice.begin + slice.elements, before + part.elements);
    if (first < last)
      consumer(fusion::Part{part.input + (first - before) * bytes,
                            part.output + (first - before) * bytes, last - first},
               first);
    before += part.elements;
    if (before >= slice.begin + slice.elements) break;
  }
}

}  // namespace

SlicedAllreduce::SlicedAllreduce(Arena& arena, Batch given, LocalRanks local_ranks, Shares shares,
                                 const LocalRanks& counterparts)
    : Pipeline(arena, std::move(given), std::move(local_ranks), counterparts),
      shares_(shares),
      cutter_(element_runs(batch()), shares.piece_bytes) {
  // Groups keep partial results in slots, so a wider window would not help them.
  if (shares.scope == Scope::all) widen_window();
}

Slice SlicedAllreduce::slice(std::size_t number, int place) const {
  return slice_of(pieces_[number].piece.elements, place, pieces_[number].slices);
}

NextPiece SlicedAllreduce::begin(std::size_t number) {
  PieceState& state = pieces_[number];
  if (!cutter_.next(state.piece)) return NextPiece::none;
  state.slices = static_cast<int>(std::clamp<std::int64_t>(
      state.piece.wire_bytes() / min_slice_bytes, shares_.min_slices, shares_.max_slices));
  state.alone = shares_.scope == Scope::all && is_for_each_alone(state.piece, size());
  state.direct = !converts(state.piece) && has_long_parts(state.piece);
  state.deposit = choose_deposit(state);
  return NextPiece::piece;
}

Deposit SlicedAllreduce::choose_deposit(const PieceState& state) {
  if (shares_.scope == Scope::host || state.alone || !state.piece.in_place()) return {};
  const fusion::Part& part = state.piece.parts.front();
  const auto input = offset_in_heap(part.input);
  const auto output = offset_in_heap(part.output);
  // Owners read the input and write the output, so both must lie in the heap.
  if (!input || !output) return {};
  return {true, *input, *output};
}

void SlicedAllreduce::deposit(std::size_t number) {
  const PieceState& state = pieces_[number];
  deposit_of(index(), number) = state.deposit;
  if (state.deposit.in_heap) return;
  if (state.alone && size() == 1 && !converts(state.piece)) return;  // no other rank reads it
  const std::int64_t all = state.piece.elements;
  if (state.alone || !state.direct) {
    pack(number, {0, all});
  } else {
    // The owner reads its own slices from the tensors, so only the other owners' slices are packed.
    std::int64_t packed = 0;
    for (int place = index(); place < state.slices; place += size()) {
      const Slice own = slice(number, place);
      pack(number, {packed, own.begin - packed});
      packed = own.begin + own.elements;
    }
    pack(number, {packed, all - packed});
  }
}

bool SlicedAllreduce::reduce_for_all(std::size_t number) {
  const PieceState& state = pieces_[number];
  const Slice own = own_slice(number);
  // The section must precede the check of the gates: see WriteFence.
  const WriteFence::Section section = arena().fence().enter();
  if (is_refused(number)) return false;
  const reduction::Arithmetic arithmetic = arithmetic_of(batch(), state.piece.wire);
  find_inputs(number, own);
  find_outputs(number, own);
  if (!state.direct) {
    reduce(number, arithmetic, own, at(number, index(), own.begin), found_outputs_);
    return true;
  }
  for_each_part(state.piece, own, [&](const fusion::Part& part, std::int64_t first) {
    outputs_.clear();
    for (std::byte* const output : found_outputs_)
      outputs_.push_back(output + wire_bytes(state, {0, first - own.begin}));
    outputs_.push_back(part.output);
    reduce(number, arithmetic, {first, part.elements}, part.input, outputs_);
  });
  return true;
}

bool SlicedAllreduce::is_refused(std::size_t number) const {
  for (int rank = 0; rank < size(); ++rank)
    if (rank != index() && deposit_of(rank, number).in_heap && is_closed(rank)) return true;
  return false;
}

Awaited SlicedAllreduce::combining_waits_for() const {
  Awaited awaited{{}, "to take results"};
  for (int rank = 0; rank < size(); ++rank)
    if (rank != index() && is_closed(rank)) awaited.ranks.push_back(name_of(rank));
  return awaited;
}

void SlicedAllreduce::find_outputs(std::size_t number, Slice slice) {
  const PieceState& state = pieces_[number];
  found_outputs_.clear();
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == index() && state.direct) continue;  // results go into its tensor
    const Deposit& deposit = deposit_of(rank, number);
    found_outputs_.push_back(deposit.in_heap ? heap(rank).data() + deposit.output +
                                                   wire_bytes(state, {0, slice.begin})
                                             : at(number, rank, slice.begin));
  }
}

bool SlicedAllreduce::reduce_in_group(std::size_t number, const reduction::Arithmetic& arithmetic,
                                      std::byte* output) {
  // The tensors of a rank whose session has failed may not be read either, since their content may
  // have changed and the other groups would trust the result.
  const WriteFence::Section section = arena().fence().enter();
  if (is_refused(number)) return false;
  reduce_inside(number, own_slice(number), arithmetic, output);
  return true;
}

bool SlicedAllreduce::spread(std::size_t number, const std::byte* results, DType dtype) {
  const PieceState& state = pieces_[number];
  const Slice own = own_slice(number);
  const WriteFence::Section section = arena().fence().enter();
  if (is_refused(number)) return false;
  find_outputs(number, own);
  for (std::byte* const output : found_outputs_)
    fusion::convert(results, dtype, own.elements, output, state.piece.wire);
  if (state.direct) {
    const std::int64_t bytes = signed_size_of(dtype);
    for_each_part(state.piece, own, [&](const fusion::Part& part, std::int64_t first) {
      fusion::convert(results + (first - own.begin) * bytes, dtype, part.elements, part.output,
                      state.piece.wire);
    });
  }
  worked((std::ssize(found_outputs_) + 1) * wire_bytes(state, own));
  return true;
}

void SlicedAllreduce::reduce_inside(std::size_t number, Slice own,
                                    const reduction::Arithmetic& arithmetic, std::byte* output) {
  const PieceState& state = pieces_[number];
  find_inputs(number, own);
  if (!state.direct) {
    reduce(number, arithmetic, own, at(number, index(), own.begin), {&output, 1});
  } else {
    const std::int64_t bytes = signed_size_of(arithmetic.result.value_or(arithmetic.dtype));
    for_each_part(state.piece, own, [&](const fusion::Part& part, std::int64_t first) {
      std::byte* const to = output + (first - own.begin) * bytes;
      reduce(number, arithmetic, {first, part.elements}, part.input, {&to, 1});
    });
  }
  if (shares_.scope != Scope::host) return;  // `spread` will write to these places
  for (int rank = 0; rank < size(); ++rank)
    if (rank != index()) take_over(at(number, rank, own.begin), wire_bytes(state, own));
}

void SlicedAllreduce::take_result(std::size_t number, Slice slice, const std::byte* results) {
  const PieceState& state = pieces_[number];
  if (!state.direct) return;
  const std::int64_t bytes = signed_size_of(state.piece.wire);
  for_each_part(state.piece, slice, [&](const fusion::Part& part, std::int64_t first) {
    std::memcpy(part.output, results + (first - slice.begin) * bytes,
                static_cast<std::size_t>(part.elements * bytes));
  });
}

void SlicedAllreduce::collect(std::size_t number) {
  const PieceState& state = pieces_[number];
  if (state.alone) {
    collect_alone(number);
    if (!converts(state.piece)) return;
  }
  if (state.deposit.in_heap) return;  // the owners have written the results there
  for (int place = 0; place < state.slices; ++place) {
    if (state.direct && owner_of(place) == index()) continue;
    const Slice theirs = slice(number, place);
    const int in_slot_of = shares_.scope == Scope::host ? owner_of(place) : index();
    const std::byte* const results = at(number, in_slot_of, 0);
    const std::int64_t bytes = signed_size_of(state.piece.wire);
    for_each_part(state.piece, theirs, [&](const fusion::Part& part, std::int64_t first) {
      fusion::convert(results + first * bytes, state.piece.wire, part.elements, part.output,
                      state.piece.dtype);
    });
    // With two ranks the owner may still read its own results, unless they are in its tensor.
    if (in_slot_of != index() && (state.direct || size() > 2) && is_last_reader())
      take_over(at(number, in_slot_of, theirs.begin), wire_bytes(state, theirs));
    worked(2 * wire_bytes(state, theirs));
  }
}

void SlicedAllreduce::collect_alone(std::size_t number) {
  const Piece& piece = pieces_[number].piece;
  const reduction::Arithmetic arithmetic = arithmetic_of(batch(), piece.wire);
  find_inputs(number, {0, piece.elements});
  // Converting pieces are `alone` only for a single rank, so no other rank reads this slot.
  // `collect` then converts the result into the tensors.
  if (converts(piece)) {
    std::byte* const own = at(number, index(), 0);
    return reduce(number, arithmetic, {0, piece.elements}, own, {&own, 1});
  }
  for_each_part(piece, {0, piece.elements}, [&](const fusion::Part& part, std::int64_t first) {
    reduce(number, arithmetic, {first, part.elements}, part.input, {&part.output, 1});
  });
  if (!is_last_reader()) return;
  for (int rank = 0; rank < size(); ++rank)
    if (rank != index()) take_over(at(number, rank, 0), piece.wire_bytes());
}

std::int64_t SlicedAllreduce::wire_bytes(const PieceState& state, Slice slice) const {
  return slice.elements * signed_size_of(state.piece.wire);
}

std::byte* SlicedAllreduce::at(std::size_t number, int rank, std::int64_t element) const {
  return memory(rank, number) + element * signed_size_of(pieces_[number].piece.wire);
}

std::optional<std::uint64_t> SlicedAllreduce::offset_in_heap(const std::byte* data) const {
  const std::span<std::byte> own = heap(index());
  const std::less<> before;
  if (before(data, own.data()) || !before(data, own.data() + own.size())) return std::nullopt;
  return static_cast<std::uint64_t>(data - own.data());
}

const std::byte* SlicedAllreduce::deposited(std::size_t number, int rank) const {
  const Deposit& deposit = deposit_of(rank, number);
  return deposit.in_heap ? heap(rank).data() + deposit.input : at(number, rank, 0);
}

void SlicedAllreduce::pack(std::size_t number, Slice slice) {
  const Piece& piece = pieces_[number].piece;
  std::byte* const packed = at(number, index(), 0);
  const std::int64_t bytes = signed_size_of(piece.wire);
  for_each_part(piece, slice, [&](const fusion::Part& part, std::int64_t first) {
    fusion::convert(part.input, piece.dtype, part.elements, packed + first * bytes, piece.wire);
  });
  worked(2 * wire_bytes(pieces_[number], slice));
}

void SlicedAllreduce::find_inputs(std::size_t number, Slice slice) {
  const std::int64_t before = wire_bytes(pieces_[number], {0, slice.begin});
  found_ = slice.begin;
  deposited_.clear();
  for (int rank = 0; rank < size(); ++rank) deposited_.push_back(deposited(number, rank) + before);
}

void SlicedAllreduce::reduce(std::size_t number, const reduction::Arithmetic& arithmetic,
                             Slice slice, const std::byte* own, reduction::Outputs outputs) {
  const std::int64_t before = (slice.begin - found_) * signed_size_of(pieces_[number].piece.wire);
  inputs_.clear();
  for (int rank = 0; rank < size(); ++rank)
    inputs_.push_back(rank == index() ? own : deposited_[static_cast<std::size_t>(rank)] + before);
  reduction::reduce(arithmetic, inputs_, slice.elements, outputs);
  worked((size() + std::ssize(outputs)) * wire_bytes(pieces_[number], slice));
}

}  // namespace kolo::internal::backend::shm
