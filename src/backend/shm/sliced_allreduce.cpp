#include "backend/shm/sliced_allreduce.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "base/dtype.hpp"
#include "fusion/pack.hpp"

namespace kolo::backend::shm {
namespace {

constexpr std::int64_t most_bytes_alone = 16 << 10;
constexpr int most_ranks_alone = 8;

std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

bool converts(const Piece& piece) { return piece.dtype != piece.wire; }

/// Of the elements of a slice, the parts of the piece in which they lie.
template <typename Consumer>
void for_each_part(const Piece& piece, Slice slice, Consumer consumer) {
  const auto bytes = bytes_of(piece.dtype);
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

SlicedAllreduce::SlicedAllreduce(Arena& arena, Batch given, int index, Hosts hosts, Shares shares)
    : Pipeline(arena, std::move(given), index, std::move(hosts)),
      shares_(shares),
      cutter_(element_runs(batch()), shares.piece_bytes) {}

Slice SlicedAllreduce::own_slice(std::size_t number) const {
  return slice_of(slots_[number].piece.elements, index(), shares_.owners);
}

Pipeline::Next SlicedAllreduce::begin(std::size_t number) {
  Slot& slot = slots_[number];
  if (!cutter_.next(slot.piece)) return Next::none;
  slot.alone =
      shares_.one_host && (size() == 1 || (slot.piece.wire_bytes() <= most_bytes_alone &&
                                           size() <= most_ranks_alone && !converts(slot.piece)));
  slot.direct = slot.piece.in_place();
  slot.shared = shares_.one_host && !slot.alone && slot.direct &&
                place_in_heap(slot.piece.parts.front().input) >= 0 &&
                place_in_heap(slot.piece.parts.front().output) >= 0;
  if (slot.shared) await_readers();
  return Next::piece;
}

void SlicedAllreduce::deposit(std::size_t number) {
  const Slot& slot = slots_[number];
  const fusion::Part& part = slot.piece.parts.front();
  deposit_of(index(), number) =
      slot.shared ? Deposit{place_in_heap(part.input), place_in_heap(part.output)} : Deposit{};
  if (slot.shared) return;
  if (slot.alone && size() == 1 && !converts(slot.piece)) return;  // nobody reads it
  const std::int64_t all = slot.piece.elements;
  if (slot.alone || !slot.direct) {
    pack(number, {0, all});
  } else {
    const Slice own = own_slice(number);
    pack(number, {0, own.begin});
    pack(number, {own.begin + own.elements, all - own.begin - own.elements});
  }
}

void SlicedAllreduce::reduce_own(std::size_t number, const reduction::Arithmetic& arithmetic,
                                 std::byte* output) {
  const Slot& slot = slots_[number];
  const Slice own = own_slice(number);
  const std::byte* const input =
      slot.direct ? slot.piece.parts.front().input + wire_bytes(slot, {0, own.begin})
                  : own_result(number);
  reduce(number, arithmetic, own, input, output);
}

std::byte* SlicedAllreduce::own_result(std::size_t number) const {
  const Slot& slot = slots_[number];
  const Slice own = own_slice(number);
  return slot.shared ? slot.piece.parts.front().output + wire_bytes(slot, {0, own.begin})
                     : at(number, index(), own.begin);
}

void SlicedAllreduce::take_own_result(std::size_t number) {
  const Slot& slot = slots_[number];
  if (!slot.direct || slot.shared) return;
  const Slice own = own_slice(number);
  std::memcpy(slot.piece.parts.front().output + wire_bytes(slot, {0, own.begin}),
              own_result(number), static_cast<std::size_t>(wire_bytes(slot, own)));
}

void SlicedAllreduce::collect(std::size_t number) {
  const Slot& slot = slots_[number];
  if (slot.alone) {
    collect_alone(number);
    if (!converts(slot.piece)) return;
  }
  for (int owner = 0; owner < shares_.owners; ++owner) {
    if (slot.direct && owner == index()) continue;
    const Slice its = slice_of(slot.piece.elements, owner, shares_.owners);
    for_each_part(slot.piece, its, [&](const fusion::Part& part, std::int64_t first) {
      fusion::convert(deposited(number, owner, deposit_of(owner, number).output, first),
                      slot.piece.wire, part.elements, part.output, slot.piece.dtype);
    });
    worked(2 * wire_bytes(slot, its));
  }
}

void SlicedAllreduce::collect_alone(std::size_t number) {
  const Piece& piece = slots_[number].piece;
  const reduction::Arithmetic arithmetic = arithmetic_of(batch(), piece.wire);
  if (converts(piece)) {
    std::byte* const own = at(number, index(), 0);
    return reduce(number, arithmetic, {0, piece.elements}, own, own);
  }
  for_each_part(piece, {0, piece.elements}, [&](const fusion::Part& part, std::int64_t first) {
    reduce(number, arithmetic, {first, part.elements}, part.input, part.output);
  });
}

std::int64_t SlicedAllreduce::wire_bytes(const Slot& slot, Slice slice) const {
  return slice.elements * bytes_of(slot.piece.wire);
}

std::byte* SlicedAllreduce::at(std::size_t number, int rank, std::int64_t element) const {
  return memory(rank, number) + element * bytes_of(slots_[number].piece.wire);
}

const std::byte* SlicedAllreduce::deposited(std::size_t number, int rank, std::int64_t place,
                                            std::int64_t element) const {
  if (place < 0) return at(number, rank, element);
  return heap(rank).data() + place + element * bytes_of(slots_[number].piece.wire);
}

std::int64_t SlicedAllreduce::place_in_heap(const std::byte* data) const {
  const std::span<std::byte> own = heap(index());
  const std::less<> before;
  return before(data, own.data()) || !before(data, own.data() + own.size()) ? -1
                                                                            : data - own.data();
}

void SlicedAllreduce::pack(std::size_t number, Slice slice) {
  const Piece& piece = slots_[number].piece;
  for_each_part(piece, slice, [&](const fusion::Part& part, std::int64_t first) {
    fusion::convert(part.input, piece.dtype, part.elements, at(number, index(), first), piece.wire);
  });
  worked(2 * wire_bytes(slots_[number], slice));
}

void SlicedAllreduce::reduce(std::size_t number, const reduction::Arithmetic& arithmetic,
                             Slice slice, const std::byte* own, std::byte* output) {
  inputs_.clear();
  for (int rank = 0; rank < size(); ++rank)
    inputs_.push_back(rank == index()
                          ? own
                          : deposited(number, rank, deposit_of(rank, number).input, slice.begin));
  reduction::reduce(arithmetic, inputs_, slice.elements, output);
  worked((size() + 1) * wire_bytes(slots_[number], slice));
}

}  // namespace kolo::backend::shm
