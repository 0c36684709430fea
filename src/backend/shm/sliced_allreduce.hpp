// SPDX-License-Identifier: Apache-2.0
// The part of an allreduce through slots that is the same on one host, in levels and on several
// hosts.
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

/// Each piece is divided into slices, which the ranks of a host own in turns. The owner combines a
/// slice of all ranks' parts, in rank order. Where hosts have different numbers of ranks, long
/// pieces have more slices, so that more ranks take part.
///
/// On one host, or in a group of ranks, each rank owns one slice. It writes its results to its own
/// tensor and to those of other ranks that lie in heaps. For every other rank it writes them into
/// that rank's slot, over the part that it has just read there. So a cache line of a slot passes
/// from the rank that packs it to the owner and back. If other ranks only read a line, the next
/// rank to write it must first invalidate their copies, which takes four to six times as long.
///
/// On several hosts the results stay in the owner's slot.
class SlicedAllreduce : public Pipeline {
 protected:
  /// The ranks whose parts an owner reduces: all of the batch; those of a NUMA node; those of a
  /// host.
  enum class Scope : std::uint8_t { all, group, host };

  struct Shares {
    int min_slices = 1;
    int max_slices = 1;  // of long pieces
    std::int64_t piece_bytes = 0;
    Scope scope = Scope::all;
  };

  SlicedAllreduce(Arena& arena, Batch given, LocalRanks local_ranks, Shares shares,
                  const LocalRanks& counterparts = {});

  [[nodiscard]] DType wire(std::size_t number) const { return pieces_[number].piece.wire; }

  /// On one host: for ranks whose sessions have failed.
  [[nodiscard]] Awaited combining_waits_for() const override;

  /// Of the slot's piece.
  [[nodiscard]] int slices(std::size_t number) const { return pieces_[number].slices; }
  [[nodiscard]] Slice slice(std::size_t number, int place) const;
  /// The first of this rank, which is the only one on one host. It may be empty.
  [[nodiscard]] Slice own_slice(std::size_t number) const { return slice(number, index()); }

  /// Scope `all`: reduces this rank's slice of all ranks' parts, and writes the results wherever
  /// they are needed. False if a rank does not take them any more: its session has failed.
  [[nodiscard]] bool reduce_for_all(std::size_t number);

  /// Scope `group`: reduces this rank's slice of the parts of the ranks of its group. False as
  /// above.
  [[nodiscard]] bool reduce_in_group(std::size_t number, const reduction::Arithmetic& arithmetic,
                                     std::byte* output);
  /// Scope `group`: writes the results of this rank's slice, elements of `dtype`, wherever they are
  /// needed. False as above.
  [[nodiscard]] bool spread(std::size_t number, const std::byte* results, DType dtype);

  // Scope `host`, for a slice that this rank owns:

  /// Reduces it of the parts of the ranks of this host.
  void reduce_inside(std::size_t number, Slice slice, const reduction::Arithmetic& arithmetic,
                     std::byte* output);
  /// Where the others of this host read the result.
  [[nodiscard]] std::byte* result_of(std::size_t number, Slice slice) const {
    return at(number, index(), slice.begin);
  }
  /// Call it when the result is there.
  void take_result(std::size_t number, Slice slice);

 private:
  struct PieceState {
    Piece piece{};
    int slices = 1;
    bool alone = false;   // every rank reduces the whole piece
    bool direct = false;  // the rank's own slice is read and written where the tensors lie
    Deposit deposit{};    // where the others read and write theirs
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
  /// An element of the piece in a rank's slot.
  [[nodiscard]] std::byte* at(std::size_t number, int rank, std::int64_t element) const;
  /// Where the others are to read the piece.
  [[nodiscard]] Deposit choose_deposit(const PieceState& state);
  /// The offset of `data` in this rank's heap, if it lies there.
  [[nodiscard]] std::optional<std::uint64_t> offset_in_heap(const std::byte* data) const;
  /// The part of the rank.
  [[nodiscard]] const std::byte* deposited(std::size_t number, int rank) const;
  [[nodiscard]] int owner_of(int place) const { return place % size(); }
  /// Finds the places for the results of the slice, of this rank, but for those in its own
  /// tensor.
  void find_outputs(std::size_t number, Slice slice);
  /// True if the results go into the memory of another rank that does not take them any more.
  [[nodiscard]] bool is_refused(std::size_t number) const;
  void pack(std::size_t number, Slice slice);
  /// Finds the deposits of all ranks for the slice, for `reduce`.
  void find_inputs(std::size_t number, Slice slice);
  /// Reads this rank's elements from `own`, those of the others from the deposits that were found.
  void reduce(std::size_t number, const reduction::Arithmetic& arithmetic, Slice slice,
              const std::byte* own, reduction::Outputs outputs);
  void collect_alone(std::size_t number);

  Shares shares_;
  Cutter cutter_;
  std::array<PieceState, max_window> pieces_{};
  std::vector<const std::byte*> deposited_{};  // where the slice lies that was found last
  std::int64_t found_ = 0;                     // its first element
  std::vector<std::byte*> found_outputs_{};    // for the slice of this rank
  std::vector<const std::byte*> inputs_{};
  std::vector<std::byte*> outputs_{};
};

}  // namespace kolo::internal::backend::shm
