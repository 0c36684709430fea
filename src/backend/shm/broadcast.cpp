// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>

#include "backend/batch.hpp"
#include "backend/pieces.hpp"
#include "backend/shm/arena.hpp"
#include "backend/shm/pipeline.hpp"

namespace kolo::internal::backend::shm {
namespace {

/// All ranks read from the root's slots.
class Broadcast : public Pipeline {
 public:
  Broadcast(Arena& arena, Batch given, LocalRanks local_ranks)
      : Pipeline(arena, std::move(given), std::move(local_ranks)),
        root_(root_index(batch())),
        source_(batch(), index() == root_, piece_bytes()) {
    collect_from(root_);
  }

 private:
  NextPiece begin(std::size_t number) override { return source_.next(pieces_[number]); }

  void deposit(std::size_t number) override {
    if (index() != root_ || size() == 1) return;
    fusion::pack(pieces_[number].parts, DType::u8, DType::u8, memory(root_, number));
    worked(2 * pieces_[number].wire_bytes());
  }

  void collect(std::size_t number) override {
    const Piece& piece = pieces_[number];
    if (index() == root_) {
      for (const fusion::Part& part : piece.parts)
        if (part.output != nullptr)
          fusion::convert(part.input, DType::u8, part.elements, part.output, DType::u8);
    } else {
      fusion::unpack(memory(root_, number), DType::u8, DType::u8, piece.parts);
      if (is_last_reader()) take_over(memory(root_, number), piece.wire_bytes());
    }
    source_.arrived(piece);
    worked(2 * piece.wire_bytes());
  }

  int root_;
  BroadcastPieces source_;
  std::array<Piece, slot_count> pieces_{};
};

}  // namespace

std::unique_ptr<Execution> make_broadcast(Arena& arena, Batch batch, LocalRanks local_ranks) {
  return std::make_unique<Broadcast>(arena, std::move(batch), std::move(local_ranks));
}

}  // namespace kolo::internal::backend::shm
