#include <algorithm>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/mpi/executions.hpp"
#include "backend/mpi/pipeline.hpp"
#include "backend/pieces.hpp"
#include "base/dtype.hpp"
#include "reduction/reduce.hpp"

namespace kolo::backend::mpi {
namespace {

constexpr std::size_t slots = 4;

// Pieces so small, among so few ranks, are sent whole to all, and each reduces alone.
constexpr std::int64_t most_bytes_alone = 4096;
constexpr int most_ranks_alone = 8;

/// Each piece is shared out among the ranks. Every rank sends each slice to the rank that owns it,
/// reduces its own, and sends the result to all.
class Allreduce : public Pipeline {
 public:
  Allreduce(Context& context, Batch given, int index)
      : Pipeline(context, std::move(given), index, slots),
        cutter_(element_runs(batch()), piece_bytes()) {}

 private:
  struct Section {
    std::int64_t offset = 0;  // in bytes on the wire
    std::int64_t elements = 0;
    std::int64_t bytes = 0;
  };

  struct Slot {
    Piece piece{};
    bool alone = false;             // every rank owns the whole piece
    std::byte* packed = nullptr;    // null if the piece moves in place
    std::byte* versions = nullptr;  // the others' of the slice that this rank owns
    const std::byte* source = nullptr;
    std::byte* target = nullptr;
    int sending = 0;    // of slices to their owners
    int receiving = 0;  // of the others' versions
    int spreading = 0;  // of results
    bool reduced = false;
    bool collecting = false;  // the others' results
  };

  bool begin(std::size_t number) override {
    Slot& slot = slots_[number];
    if (!cutter_.next(slot.piece)) return false;
    const std::int64_t bytes = slot.piece.wire_bytes();
    slot.alone =
        bytes <= std::min(most_bytes_alone, piece_bytes() / 4) && size() <= most_ranks_alone;
    slot.reduced = slot.collecting = false;
    choose_memory(slot);
    const std::int64_t own_bytes = section(slot, index()).bytes;
    slot.versions = size() > 1 ? exchange().take((size() - 1) * own_bytes) : nullptr;
    const int lane = 2 * static_cast<int>(number);
    for (int distance = 1; distance < size(); ++distance) {
      const int from = (index() + size() - distance) % size();
      exchange().receive(rank_of(from), lane, version(slot, from), own_bytes, slot.receiving);
    }
    for (int distance = 1; distance < size(); ++distance) {
      const int to = (index() + distance) % size();
      const Section its = section(slot, to);
      exchange().send(rank_of(to), lane, slot.source + its.offset, its.bytes, slot.sending);
    }
    return true;
  }

  Progress advance(std::size_t number) override {
    Slot& slot = slots_[number];
    const int lane = 2 * static_cast<int>(number) + 1;
    bool moved = false;
    // What others are still sent must not be overwritten.
    const bool target_is_free = slot.sending == 0 || slot.source != slot.target;
    if (!slot.reduced && slot.receiving == 0 && (!slot.alone || target_is_free)) {
      reduce(slot);
      if (!slot.alone) spread(slot, lane);
      slot.reduced = moved = true;
    }
    if (!slot.collecting && target_is_free) {
      if (!slot.alone) collect(slot, lane);
      slot.collecting = moved = true;
    }
    if (slot.reduced && slot.collecting && slot.sending == 0 && slot.spreading == 0) {
      finish(slot);
      return Progress::done;
    }
    return moved ? Progress::moved : Progress::waiting;
  }

  void choose_memory(Slot& slot) {
    const Piece& piece = slot.piece;
    if (piece.in_place()) {
      slot.packed = nullptr;
      slot.source = piece.parts.front().input;
      slot.target = piece.parts.front().output;
    } else {
      const PhaseTimer timer(batch(), Phase::pack);
      slot.packed = exchange().take(piece.wire_bytes());
      fusion::pack(piece.parts, piece.dtype, piece.wire, slot.packed);
      worked(piece.wire_bytes(), piece.wire);
      slot.source = slot.target = slot.packed;
    }
  }

  [[nodiscard]] Section section(const Slot& slot, int owner) const {
    const std::int64_t all = slot.piece.elements;
    const auto element_bytes = signed_size_of(slot.piece.wire);
    const Slice slice = slot.alone ? Slice{0, all} : slice_of(all, owner, size());
    return {slice.begin * element_bytes, slice.elements, slice.elements * element_bytes};
  }

  /// Where the version of the rank `from` is put.
  [[nodiscard]] std::byte* version(const Slot& slot, int from) const {
    const int before = from < index() ? from : from - 1;
    return slot.versions + before * section(slot, index()).bytes;
  }

  void reduce(const Slot& slot) {
    const PhaseTimer timer(batch(), Phase::reduce);
    const Section own = section(slot, index());
    inputs_.clear();
    for (int from = 0; from < size(); ++from)
      inputs_.push_back(from == index() ? slot.source + own.offset : version(slot, from));
    reduction::reduce(arithmetic_of(batch(), slot.piece.wire), inputs_, own.elements,
                      slot.target + own.offset);
    worked(size() * own.bytes, slot.piece.wire);
  }

  void spread(Slot& slot, int lane) {
    const Section own = section(slot, index());
    for (int distance = 1; distance < size(); ++distance) {
      const int to = rank_of((index() + distance) % size());
      exchange().send(to, lane, slot.target + own.offset, own.bytes, slot.spreading);
    }
  }

  void collect(Slot& slot, int lane) {
    for (int distance = 1; distance < size(); ++distance) {
      const int from = (index() + size() - distance) % size();
      const Section its = section(slot, from);
      exchange().receive(rank_of(from), lane, slot.target + its.offset, its.bytes, slot.spreading);
    }
  }

  void finish(Slot& slot) {
    if (slot.packed != nullptr) {
      const PhaseTimer timer(batch(), Phase::unpack);
      fusion::unpack(slot.packed, slot.piece.wire, slot.piece.dtype, slot.piece.parts);
      worked(slot.piece.wire_bytes(), slot.piece.wire);
    }
    exchange().give_back(slot.packed);
    exchange().give_back(slot.versions);
  }

  Cutter cutter_;
  std::array<Slot, slots> slots_{};
  std::vector<const std::byte*> inputs_{};
};

}  // namespace

std::unique_ptr<Execution> make_allreduce(Context& context, Batch batch, int index) {
  return std::make_unique<Allreduce>(context, std::move(batch), index);
}

}  // namespace kolo::backend::mpi
