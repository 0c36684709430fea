#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/pieces.hpp"
#include "backend/shm/executions.hpp"
#include "backend/shm/pipeline.hpp"

namespace kolo::backend::shm {
namespace {

// Pieces so small are reduced by every rank as a whole: that saves a round.
constexpr std::int64_t most_bytes_alone = 16 << 10;
constexpr int most_ranks_alone = 8;

/// Of the elements from `begin` on, the parts of the piece in which they lie.
template <typename Consumer>
void for_each_part(const Piece& piece, Slice slice, Consumer consumer) {
  const auto bytes = static_cast<std::int64_t>(size_of(piece.dtype));
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

/// Each piece is shared out among the ranks: each reduces its slice of all slots, in rank order,
/// into its own slot, and the others take it from there.
class Allreduce : public Pipeline {
 public:
  Allreduce(Arena& arena, Batch given, int index, Hosts hosts)
      : Pipeline(arena, std::move(given), index, std::move(hosts)),
        cutter_(element_runs(batch()), piece_bytes()) {}

 private:
  struct Slot {
    Piece piece{};
    bool alone = false;   // every rank reduces the whole piece
    bool direct = false;  // the rank's own slice is read and written where the tensor lies
    bool shared = false;  // so are the others': the tensor lies in this rank's heap
  };

  Next begin(std::size_t number) override {
    Slot& slot = slots_[number];
    if (!cutter_.next(slot.piece)) return Next::none;
    const bool converts = slot.piece.dtype != slot.piece.wire;
    slot.alone = size() == 1 || (slot.piece.wire_bytes() <= most_bytes_alone &&
                                 size() <= most_ranks_alone && !converts);
    slot.direct = slot.piece.in_place();
    slot.shared = !slot.alone && slot.direct && in_heap(slot.piece.parts.front().input) >= 0 &&
                  in_heap(slot.piece.parts.front().output) >= 0;
    if (slot.shared) await_readers();
    return Next::piece;
  }

  void deposit(std::size_t number) override {
    const Slot& slot = slots_[number];
    if (size() == 1 && !converts(slot)) return;  // nobody reads it
    const std::int64_t all = slot.piece.elements;
    const fusion::Part& part = slot.piece.parts.front();
    deposit_of(index(), number) =
        slot.shared ? Deposit{in_heap(part.input), in_heap(part.output)} : Deposit{};
    if (slot.shared) return;
    if (slot.alone || !slot.direct) {
      pack(slot, number, {0, all});
    } else {
      const Slice own = slice_of(all, index(), size());
      pack(slot, number, {0, own.begin});
      pack(slot, number, {own.begin + own.elements, all - own.begin - own.elements});
    }
  }

  [[nodiscard]] bool combines(std::size_t number) const override { return !slots_[number].alone; }

  void combine(std::size_t number) override {
    const Slot& slot = slots_[number];
    const Slice own = slice_of(slot.piece.elements, index(), size());
    if (own.elements == 0) return;
    const fusion::Part& part = slot.piece.parts.front();
    const std::int64_t offset = own.begin * bytes_of(slot.piece.dtype);
    std::byte* const result =
        slot.shared ? part.output + offset : at(slot, number, index(), own.begin);
    reduce(slot, number, own, slot.direct ? part.input + offset : result, result);
    if (slot.direct && !slot.shared) std::memcpy(part.output + offset, result, wire_bytes(slot, own));
  }

  void collect(std::size_t number) override {
    const Slot& slot = slots_[number];
    const Piece& piece = slot.piece;
    if (slot.alone && !converts(slot)) {
      for_each_part(piece, {0, piece.elements}, [&](const fusion::Part& part, std::int64_t first) {
        reduce(slot, number, {first, part.elements}, part.input, part.output);
      });
      return;
    }
    if (slot.alone) {
      std::byte* const own = at(slot, number, index(), 0);
      reduce(slot, number, {0, piece.elements}, own, own);
    }
    for (int owner = 0; owner < size(); ++owner) {
      const Slice its = slice_of(piece.elements, owner, size());
      if (slot.direct && owner == index()) continue;
      for_each_part(piece, its, [&](const fusion::Part& part, std::int64_t first) {
        fusion::convert(result_of(slot, number, owner, first), piece.wire, part.elements, part.output,
                        piece.dtype);
      });
      worked(2 * static_cast<std::int64_t>(wire_bytes(slot, its)));
    }
  }

  static std::int64_t bytes_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }
  static bool converts(const Slot& slot) { return slot.piece.dtype != slot.piece.wire; }
  static std::size_t wire_bytes(const Slot& slot, Slice slice) {
    return static_cast<std::size_t>(slice.elements * bytes_of(slot.piece.wire));
  }

  /// An element of the piece in a rank's slot.
  [[nodiscard]] std::byte* at(const Slot& slot, std::size_t number, int rank,
                              std::int64_t element) const {
    return memory(rank, number) + element * bytes_of(slot.piece.wire);
  }

  /// The same where the rank has deposited it, in the slot or in its heap.
  [[nodiscard]] const std::byte* input_of(const Slot& slot, std::size_t number, int rank,
                                          std::int64_t element) const {
    const std::int64_t place = deposit_of(rank, number).input;
    return place < 0 ? at(slot, number, rank, element) : in_heap(slot, rank, place, element);
  }
  /// Where it has left its result.
  [[nodiscard]] const std::byte* result_of(const Slot& slot, std::size_t number, int rank,
                                           std::int64_t element) const {
    const std::int64_t place = deposit_of(rank, number).output;
    return place < 0 ? at(slot, number, rank, element) : in_heap(slot, rank, place, element);
  }

  [[nodiscard]] const std::byte* in_heap(const Slot& slot, int rank, std::int64_t place,
                                         std::int64_t element) const {
    return heap(rank).data() + place + element * bytes_of(slot.piece.wire);
  }
  /// Where in this rank's heap something lies; -1 if it does not.
  [[nodiscard]] std::int64_t in_heap(const std::byte* place) const {
    const std::span<std::byte> own = heap(index());
    const std::less<> before;
    return before(place, own.data()) || !before(place, own.data() + own.size())
               ? -1
               : place - own.data();
  }

  void pack(const Slot& slot, std::size_t number, Slice slice) {
    const Piece& piece = slot.piece;
    for_each_part(piece, slice, [&](const fusion::Part& part, std::int64_t first) {
      fusion::convert(part.input, piece.dtype, part.elements, at(slot, number, index(), first),
                      piece.wire);
    });
    worked(2 * static_cast<std::int64_t>(wire_bytes(slot, slice)));
  }

  /// Of this rank's elements `own` is read, of the others' their slots.
  void reduce(const Slot& slot, std::size_t number, Slice slice, const std::byte* own,
              std::byte* output) {
    inputs_.clear();
    for (int rank = 0; rank < size(); ++rank)
      inputs_.push_back(rank == index() ? own : input_of(slot, number, rank, slice.begin));
    reduction::reduce(arithmetic_of(batch(), slot.piece.wire), inputs_, slice.elements, output);
    worked((size() + 1) * static_cast<std::int64_t>(wire_bytes(slot, slice)));
  }

  Cutter cutter_;
  std::array<Slot, slot_count> slots_{};
  std::vector<const std::byte*> inputs_{};
};

}  // namespace

std::unique_ptr<Execution> make_allreduce(Arena& arena, Batch batch, int index, Hosts hosts) {
  return std::make_unique<Allreduce>(arena, std::move(batch), index, std::move(hosts));
}

}  // namespace kolo::backend::shm
