#include <array>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/shm/pipeline.hpp"
#include "fusion/pack.hpp"

namespace kolo::internal::backend::shm {
namespace {

/// A piece is a window on all ranks' rows. Every rank deposits what it has for the others, and
/// reduces what they have for it straight into its output.
class Reducescatter : public Pipeline {
 public:
  Reducescatter(Arena& arena, Batch given, int index, LocalRanks local_ranks)
      : Pipeline(arena, std::move(given), index, std::move(local_ranks)),
        windows_(batch(), piece_bytes()) {}

 private:
  struct PieceState {
    Window window{};
    DType wire = DType::u8;
  };

  NextPiece begin(std::size_t number) override {
    PieceState& state = pieces_[number];
    if (!windows_.next(state.window)) return NextPiece::none;
    state.wire = fusion::wire_type(state.window.tensor->dtype, batch().kind.compression);
    return NextPiece::piece;
  }

  void deposit(std::size_t number) override {
    const PieceState& state = pieces_[number];
    for (int owner = 0; owner < size(); ++owner) {
      if (reads_input(state, owner)) continue;
      const std::int64_t elements = state.window.elements_of(owner, size());
      fusion::convert(state.window.input_of(owner, size()), state.window.tensor->dtype, elements,
                      part_for(state, number, index(), owner), state.wire);
      worked(2 * elements * signed_size_of(state.wire));
    }
  }

  void collect(std::size_t number) override {
    const PieceState& state = pieces_[number];
    const std::int64_t elements = state.window.elements_of(index(), size());
    if (elements == 0) return;
    inputs_.clear();
    for (int rank = 0; rank < size(); ++rank)
      inputs_.push_back(rank == index() && reads_input(state, rank)
                            ? state.window.input_of(rank, size())
                            : part_for(state, number, rank, index()));
    reduction::Arithmetic arithmetic = arithmetic_of(batch(), state.wire);
    arithmetic.result = state.window.tensor->dtype;
    reduction::reduce(arithmetic, inputs_, elements, state.window.output());
    worked((size() + 1) * elements * signed_size_of(state.wire));
  }

  /// What a rank has for itself need not be deposited unless it is converted.
  [[nodiscard]] bool reads_input(const PieceState& state, int owner) const {
    return owner == index() && state.wire == state.window.tensor->dtype;
  }

  /// In the slot of `rank`, what it has for `owner`.
  [[nodiscard]] std::byte* part_for(const PieceState& state, std::size_t number, int rank,
                                    int owner) const {
    return memory(rank, number) + owner * state.window.max_elements * signed_size_of(state.wire);
  }

  Windows windows_;
  std::array<PieceState, slot_count> pieces_{};
  std::vector<const std::byte*> inputs_{};
};

}  // namespace

std::unique_ptr<Execution> make_reducescatter(Arena& arena, Batch batch, int index,
                                              LocalRanks local_ranks) {
  return std::make_unique<Reducescatter>(arena, std::move(batch), index, std::move(local_ranks));
}

}  // namespace kolo::internal::backend::shm
