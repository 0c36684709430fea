// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/mpi/collective.hpp"
#include "fusion/pack.hpp"

namespace kolo::internal::backend::mpi {
namespace {

/// Broadcasts along a binomial tree: every rank receives a piece from its parent and forwards it to
/// its children. The root's inputs are read; the outputs of all other ranks are written, and those
/// of the root if they are not its inputs.
class Broadcast : public PiecewiseCollective {
 public:
  Broadcast(Endpoint& endpoint, Batch given)
      : PiecewiseCollective(endpoint, std::move(given), pieces_on_own_lanes, pieces_on_own_lanes),
        root_(root_index(batch())),
        source_(batch(), index() == root_, piece_bytes()) {
    // Counting places from the root, the parent of a rank is its place without the lowest bit.
    const int place = (index() - root_ + size()) % size();
    int bit = 1;
    while (bit < size() && (place & bit) == 0) bit *= 2;
    if (place != 0) parent_ = (place - bit + root_) % size();
    // The child with the largest subtree is served first, since its data has the longest way.
    for (int step = bit / 2; step > 0; step /= 2)
      if (place + step < size()) children_.push_back((place + step + root_) % size());
  }

 private:
  struct PieceState {
    Piece piece{};
    std::byte* packed = nullptr;  // null if the piece is sent and received in place
    int receiving = 0;
    int sending = 0;
    bool sent_on = false;
  };

  NextPiece begin(std::size_t number) override {
    PieceState& state = pieces_[number];
    const NextPiece next = source_.next(state.piece);
    if (next != NextPiece::piece) return next;
    state.sent_on = false;
    state.packed = state.piece.in_place() ? nullptr : exchange().take(state.piece.wire_bytes());
    const int lane = static_cast<int>(number);
    if (index() == root_) {
      if (state.packed != nullptr) {
        fusion::pack(state.piece.parts, DType::u8, DType::u8, state.packed);
        worked(state.piece.wire_bytes(), DType::u8);
      }
      send_on(state, lane);
    } else {
      std::byte* const to =
          state.packed != nullptr ? state.packed : state.piece.parts.front().output;
      exchange().receive(rank_of(parent_), lane, to, state.piece.wire_bytes(), state.receiving);
    }
    return NextPiece::piece;
  }

  Progress advance(std::size_t number) override {
    PieceState& state = pieces_[number];
    bool moved = false;
    if (!state.sent_on && state.receiving == 0) {
      send_on(state, static_cast<int>(number));
      moved = true;
    }
    if (state.sent_on && state.sending == 0) {
      finish(state);
      return Progress::done;
    }
    return moved ? Progress::moved : Progress::waiting;
  }

  void send_on(PieceState& state, int lane) {
    const fusion::Part& part = state.piece.parts.front();
    const std::byte* const from = state.packed != nullptr ? state.packed
                                  : index() == root_      ? part.input
                                                          : part.output;
    for (const int child : children_)
      exchange().send(rank_of(child), lane, from, state.piece.wire_bytes(), state.sending);
    state.sent_on = true;
  }

  void finish(PieceState& state) {
    if (index() == root_) {
      for (const fusion::Part& part : state.piece.parts) {
        if (part.output == nullptr || part.output == part.input) continue;
        fusion::convert(part.input, DType::u8, part.elements, part.output, DType::u8);
        worked(part.elements, DType::u8);
      }
    } else if (state.packed != nullptr) {
      fusion::unpack(state.packed, DType::u8, DType::u8, state.piece.parts);
      worked(state.piece.wire_bytes(), DType::u8);
    }
    exchange().give_back(state.packed);
    source_.arrived(state.piece);
  }

  int root_;
  int parent_ = -1;              // an index; -1 for the root
  std::vector<int> children_{};  // the child with the largest subtree first
  BroadcastPieces source_;
  std::array<PieceState, pieces_on_own_lanes> pieces_{};
};

}  // namespace

std::unique_ptr<Execution> make_broadcast(Endpoint& endpoint, Batch batch) {
  return std::make_unique<Broadcast>(endpoint, std::move(batch));
}

}  // namespace kolo::internal::backend::mpi
