// SPDX-License-Identifier: Apache-2.0
// The common part of allreduces through slots: on one host, in levels, and on several hosts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "backend/batch.hpp"
#include "backend/pieces.hpp"
#include "backend/shm/pipeline.hpp"
#include "reduction/reduce.hpp"

namespace kolo::internal::backend::shm {

/// Each piece is divided into slices, which the ranks of a host own in turn. The owner combines its
/// slice of all ranks' parts in rank order. If hosts have different numbers of ranks, long pieces
/// have more slices, so that more ranks take part.
///
/// On one host, or in a group of ranks, each rank owns one slice. It writes its results to its own
/// tensor, and to the tensors of other ranks that lie in heaps. For every other rank it writes them
/// into that rank's slot, over the part that it has just read there. So a cache line of a slot
/// passes from the rank that packs it to the owner and back. If other ranks only read a line, the
/// next rank to write it must first invalidate their copies, which takes four to six times as long.
///
/// On several hosts, the results remain in the owner's slot.
class SlicedAllreduce : public Pipeline {
 protected:
  /// The ranks whose parts an owner reduces: all ranks of the batch, those of a NUMA node, or those
  /// of a host.
  enum class Scope : std::uint8_t { all, group, host };

  struct Shares {
    int min_slices = 1;
    int max_slices = 1;  // for long pieces
    std::int64_t piece_bytes = 0;
    Scope scope = Scope::all;
  };

  SlicedAllreduce(Arena& arena, Batch given, LocalRanks local_ranks, Shares shares,
                  const LocalRanks& counterparts = {});

  [[nodiscard]] DType wire(std::size_t number) const { return pieces_[number].piece.wire; }

  /// On one host: the ranks whose sessions have failed.
  [[nodiscard]] Awaited combining_waits_for() const override;

  /// The number of slices of a piece.
  [[nodiscard]] int slices(std::size_t number) const { return pieces_[number].slices; }
  [[nodiscard]] Slice slice(std::size_t number, int place) const;
  /// The first slice of this rank, which is its only one on one host. It may be empty.
  [[nodiscard]] Slice own_slice(std::size_t number) const { return slice(number, index()); }

  /// Scope `all`: reduces this rank's slice of all parts, and writes the results to all ranks.
  /// False if a rank does not accept them because its session has failed.
  [[nodiscard]] bool reduce_for_all(std::size_t number);

  /// Scope `group`: reduces this rank's slice of the parts of its group. False as above.
  [[nodiscard]] bool reduce_in_group(std::size_t number, const reduction::Arithmetic& arithmetic,
                                     std::byte* output);
  /// Scope `group`: writes the results of this rank's slice, elements of `dtype`, to all ranks of
  /// the group. False as above.
  [[nodiscard]] bool spread(std::size_t number, const std::byte* results, DType dtype);

  // The functions for scope `host` apply to any slice that this rank owns.

  /// Reduces this slice of the piece over the ranks of this host.
  void reduce_inside(std::size_t number, Slice slice, const reduction::Arithmetic& arithmetic,
                     std::byte* output);
  /// The place where the other ranks of this host read the result.
  [[nodiscard]] std::byte* result_of(std::size_t number, Slice slice) const {
    return at(number, index(), slice.begin);
  }
  /// Copies the result to this rank's tensor from `results`, where the slice begins.
  void take_result(std::size_t number, Slice slice, const std::byte* results);
  /// True if only this rank needs the result, and not at `result_of`.
  [[nodiscard]] bool takes_alone(std::size_t number) const {
    return size() == 1 && pieces_[number].direct;
  }

 private:
  struct PieceState {
    Piece piece{};
    int slices = 1;
    bool alone = false;   // every rank reduces the whole piece
    bool direct = false;  // this rank's slice is read and written in the tensors
    Deposit deposit{};    // where other ranks read and write this rank's part
  };

  NextPiece begin(std::size_t number) final;
  [[nodiscard]] bool uses_slot(std::size_t number) const final {
    return !pieces_[number].deposit.in_heap;
  }
  void deposit(std::size_t number) final;
  [[nodiscard]] bool combines(std::size_t number) const final { return !pieces_[number].alone; }
  void collect(std::size_t number) final;
  [[nodiscard]] Phase collecting(std::size_t number) const final {
    return pieces_[number].alone ? Phase::reduce : Phase::unpack;
  }

  [[nodiscard]] std::int64_t wire_bytes(const PieceState& state, Slice slice) const;
  /// The address of an element of the piece in a rank's slot.
  [[nodiscard]] std::byte* at(std::size_t number, int rank, std::int64_t element) const;
  /// Decides where the other ranks read the piece.
  [[nodiscard]] Deposit choose_deposit(const PieceState& state);
  /// The offset of `data` in this rank's heap, if it lies there.
  [[nodiscard]] std::optional<std::uint64_t> offset_in_heap(const std::byte* data) const;
  /// The start of the part that the rank has deposited.
  [[nodiscard]] const std::byte* deposited(std::size_t number, int rank) const;
  [[nodiscard]] int owner_of(int place) const { return place % size(); }
  /// Finds the places for the results of this rank's slice, except those in its own tensor.
  void find_outputs(std::size_t number, Slice slice);
  /// True if another rank no longer accepts results in its memory.
  [[nodiscard]] bool is_refused(std::size_t number) const;
  void pack(std::size_t number, Slice slice);
  /// Finds the slice in the deposits of all ranks, for `reduce`.
  void find_inputs(std::size_t number, Slice slice);
  /// Reads this rank's elements from `own`, and those of other ranks from the deposits found
  /// before.
  void reduce(std::size_t number, const reduction::Arithmetic& arithmetic, Slice slice,
              const std::byte* own, reduction::Outputs outputs);
  void collect_alone(std::size_t number);

  Shares shares_;
  Cutter cutter_;
  std::array<PieceState, max_window> pieces_{};
  std::vector<const std::byte*> deposited_{};  // where the last found slice lies, by rank
  std::int64_t found_ = 0;                     // the first element of that slice
  std::vector<std::byte*> found_outputs_{};    // for this rank's slice
  std::vector<const std::byte*> inputs_{};
  std::vector<std::byte*> outputs_{};
};

}  // namespace kolo::internal::backend::shm
