// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <utility>

#include "backend/batch.hpp"
#include "backend/mpi/collective.hpp"
#include "backend/pieces.hpp"
#include "base/dtype.hpp"
#include "reduction/reduce.hpp"

namespace kolo::internal::backend::mpi {
namespace {

/// The initial number of pieces in flight, which fits the caches.
constexpr std::size_t few_pieces = 4;

/// The maximum number of pieces in flight: fewer with more ranks, since each piece has a part for
/// every rank, but at least `few_pieces`.
std::size_t max_pieces_for(int ranks) {
  constexpr std::size_t of_two_ranks = PiecewiseCollective::max_pieces;
  return std::max(few_pieces, of_two_ranks / static_cast<std::size_t>(std::max(1, ranks - 1)));
}

/// If even the fastest piece takes this long, more pieces in flight may use the network better.
constexpr std::chrono::milliseconds long_way{2};
/// If a piece takes this many times as long as the fastest, it has waited for other pieces: there
/// are enough in flight, or too many, which slows networks down.
constexpr double enough = 1.25;
constexpr double too_many = 1.5;

/// Pieces take turns on these pairs of lanes. A pair has one lane for parts and one for results.
constexpr std::size_t lane_pairs = Exchange::lanes / 2;

/// With up to this many ranks, the slices of a piece are messages of full length.
constexpr int max_slices_of_full_length = 8;

// Pieces up to this size, among up to this many ranks, are sent whole to all, and each rank reduces
// them alone.
constexpr std::int64_t max_bytes_alone = 4096;
constexpr int max_ranks_alone = 8;

/// Each piece is divided among the ranks. Every rank sends each slice to its owner, reduces its own
/// slice, and sends the result to all. Pieces share lanes, so all messages of a kind must be sent
/// and received in the order of the pieces.
class Allreduce : public PiecewiseReduction {
 public:
  Allreduce(Endpoint& endpoint, Batch given)
      : Allreduce(endpoint, given, static_cast<int>(given.ranks.size())) {}

 private:
  Allreduce(Endpoint& endpoint, Batch& given, int ranks)
      : PiecewiseReduction(endpoint, std::move(given), few_pieces, max_pieces_for(ranks)),
        cutter_(element_runs(batch()),
                piece_bytes() * std::min(size(), max_slices_of_full_length)) {}

  struct Section {
    std::int64_t offset = 0;  // in bytes on the wire
    std::int64_t elements = 0;
    std::int64_t bytes = 0;
  };

  struct PieceState {
    Piece piece{};
    bool alone = false;           // every rank owns the whole piece
    std::byte* packed = nullptr;  // null if the piece is sent and received in place
    Versions versions{};
    const std::byte* source = nullptr;
    std::byte* target = nullptr;
    int sending = 0;    // slices on their way to their owners
    int spreading = 0;  // results on their way
    bool reduced = false;
    bool collecting = false;  // receives for the results of other ranks are posted
    std::size_t place = 0;    // the piece's place in the order of all pieces
    TimePoint begun{};
  };

  NextPiece begin(std::size_t number) override {
    if (number == pieces_.size()) pieces_.emplace_back();
    PieceState& state = pieces_[number];
    if (!cutter_.next(state.piece)) return NextPiece::none;
    const std::int64_t bytes = state.piece.wire_bytes();
    state.alone =
        bytes <= std::min(max_bytes_alone, piece_bytes() / 4) && size() <= max_ranks_alone;
    state.reduced = state.collecting = false;
    state.place = begun_++;
    state.begun = now();
    choose_memory(state);
    const int lane = first_lane(state);
    receive_versions(state.versions, section(state, index()).bytes, lane);
    for_each_other([&](int to, int) {
      const Section theirs = section(state, to);
      exchange().send(rank_of(to), lane, state.source + theirs.offset, theirs.bytes, state.sending);
    });
    return NextPiece::piece;
  }

  Progress advance(std::size_t number) override {
    PieceState& state = pieces_[number];
    const int lane = first_lane(state) + 1;
    bool moved = false;
    // Memory that is still being sent must not be overwritten.
    const bool target_is_free = state.sending == 0 || state.source != state.target;
    if (state.place == reduced_ && state.versions.receiving == 0 &&
        (!state.alone || target_is_free)) {
      reduce(state);
      if (!state.alone) spread(state, lane);
      state.reduced = moved = true;
      ++reduced_;
    }
    if (state.place == collecting_ && target_is_free) {
      if (!state.alone) collect(state, lane);
      state.collecting = moved = true;
      ++collecting_;
    }
    if (state.reduced && state.collecting && state.sending == 0 && state.spreading == 0) {
      finish(state);
      if (!state.alone) adapt(state);
      return Progress::done;
    }
    return moved ? Progress::moved : Progress::waiting;
  }

  /// Adapts the number of pieces in flight to the time that this piece took. The results of other
  /// ranks contain this rank's parts, so a piece takes at least one round trip. The first pieces
  /// may take long only because other ranks have begun late.
  void adapt(const PieceState& state) {
    const TimePoint::duration taken = now() - state.begun;
    fastest_ = std::min(fastest_, taken);
    if (fastest_ < long_way)
      set_under_way(few_pieces);
    else if (state.place >= few_pieces && taken < enough * fastest_)
      set_under_way(under_way() + 1);
    else if (taken > too_many * fastest_)
      set_under_way(std::max(under_way() - 1, few_pieces));
  }

  [[nodiscard]] static int first_lane(const PieceState& state) {
    return 2 * static_cast<int>(state.place % lane_pairs);
  }

  void choose_memory(PieceState& state) {
    const Piece& piece = state.piece;
    if (piece.in_place()) {
      state.packed = nullptr;
      state.source = piece.parts.front().input;
      state.target = piece.parts.front().output;
    } else {
      const PhaseTimer timer(batch(), Phase::pack);
      state.packed = exchange().take(piece.wire_bytes());
      fusion::pack(piece.parts, piece.dtype, piece.wire, state.packed);
      worked(piece.wire_bytes(), piece.wire);
      state.source = state.target = state.packed;
    }
  }

  [[nodiscard]] Section section(const PieceState& state, int owner) const {
    const std::int64_t all = state.piece.elements;
    const auto element_bytes = signed_size_of(state.piece.wire);
    const Slice slice = state.alone ? Slice{0, all} : slice_of(all, owner, size());
    return {slice.begin * element_bytes, slice.elements, slice.elements * element_bytes};
  }

  void reduce(const PieceState& state) {
    const PhaseTimer timer(batch(), Phase::reduce);
    const Section own = section(state, index());
    reduction::reduce(arithmetic_of(batch(), state.piece.wire),
                      in_rank_order(state.versions, state.source + own.offset), own.elements,
                      state.target + own.offset);
    worked(size() * own.bytes, state.piece.wire);
  }

  void spread(PieceState& state, int lane) {
    const Section own = section(state, index());
    for_each_other([&](int to, int) {
      exchange().send(rank_of(to), lane, state.target + own.offset, own.bytes, state.spreading);
    });
  }

  void collect(PieceState& state, int lane) {
    for_each_other([&](int, int from) {
      const Section theirs = section(state, from);
      exchange().receive(rank_of(from), lane, state.target + theirs.offset, theirs.bytes,
                         state.spreading);
    });
  }

  void finish(PieceState& state) {
    if (state.packed != nullptr) {
      const PhaseTimer timer(batch(), Phase::unpack);
      fusion::unpack(state.packed, state.piece.wire, state.piece.dtype, state.piece.parts);
      worked(state.piece.wire_bytes(), state.piece.wire);
    }
    exchange().give_back(state.packed);
    exchange().give_back(state.versions.memory);
  }

  Cutter cutter_;
  std::deque<PieceState> pieces_{};  // by number; a deque, since the network writes counters in it
  // How many pieces have been begun, have been reduced, and have posted receives for results. Each
  // of these steps happens in the order of the pieces.
  std::size_t begun_ = 0;
  std::size_t reduced_ = 0;
  std::size_t collecting_ = 0;
  TimePoint::duration fastest_ = TimePoint::duration::max();
};

}  // namespace

std::unique_ptr<Execution> make_allreduce(Endpoint& endpoint, Batch batch) {
  return std::make_unique<Allreduce>(endpoint, std::move(batch));
}

}  // namespace kolo::internal::backend::mpi
