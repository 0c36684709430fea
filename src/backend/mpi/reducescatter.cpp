#include <algorithm>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/mpi/collective.hpp"
#include "base/dtype.hpp"
#include "fusion/pack.hpp"
#include "reduction/reduce.hpp"

namespace kolo::internal::backend::mpi {
namespace {

/// A piece is, of one tensor, the elements at the same place in every rank's rows: every rank sends
/// each slice to the rank that gets it, and reduces its own.
class Reducescatter : public PiecewiseCollective {
 public:
  Reducescatter(Endpoint& endpoint, Batch given, int index)
      : PiecewiseCollective(endpoint, std::move(given), index, max_pieces),
        windows_(batch(), piece_bytes()) {}

 private:
  struct PieceState {
    Window window{};
    DType wire = DType::u8;
    std::byte* packed =
        nullptr;  // slices, as far apart as windows are long; null without conversion
    std::byte* versions = nullptr;  // the others' of this rank's slice
    int sending = 0;
    int receiving = 0;
    bool reduced = false;
  };

  NextPiece begin(std::size_t number) override {
    PieceState& state = pieces_[number];
    if (!windows_.next(state.window)) return NextPiece::none;
    state.wire = fusion::wire_type(state.window.tensor->dtype, batch().kind.compression);
    state.reduced = false;
    pack(state);
    post(state, static_cast<int>(number));
    return NextPiece::piece;
  }

  Progress advance(std::size_t number) override {
    PieceState& state = pieces_[number];
    bool moved = false;
    if (!state.reduced && state.receiving == 0) {
      reduce(state);
      state.reduced = moved = true;
    }
    if (state.reduced && state.sending == 0) {
      exchange().give_back(state.packed);
      exchange().give_back(state.versions);
      return Progress::done;
    }
    return moved ? Progress::moved : Progress::waiting;
  }

  [[nodiscard]] std::int64_t slice_elements(const PieceState& state, int owner) const {
    return state.window.elements_of(owner, size());
  }

  /// As it travels.
  [[nodiscard]] const std::byte* slice(const PieceState& state, int owner) const {
    return state.packed == nullptr
               ? state.window.input_of(owner, size())
               : state.packed + owner * state.window.max_elements * signed_size_of(state.wire);
  }

  [[nodiscard]] std::byte* version(const PieceState& state, int from) const {
    const int before = from < index() ? from : from - 1;
    return state.versions + before * slice_elements(state, index()) * signed_size_of(state.wire);
  }

  void pack(PieceState& state) {
    state.packed = nullptr;
    if (state.wire == state.window.tensor->dtype) return;
    const std::int64_t stride = state.window.max_elements * signed_size_of(state.wire);
    state.packed = exchange().take(size() * stride);
    for (int owner = 0; owner < size(); ++owner)
      fusion::convert(state.window.input_of(owner, size()), state.window.tensor->dtype,
                      slice_elements(state, owner), state.packed + owner * stride, state.wire);
    worked(size() * stride, state.wire);
  }

  void post(PieceState& state, int lane) {
    const std::int64_t own_bytes = slice_elements(state, index()) * signed_size_of(state.wire);
    state.versions = size() > 1 ? exchange().take((size() - 1) * own_bytes) : nullptr;
    for (int distance = 1; distance < size(); ++distance) {
      const int from = (index() + size() - distance) % size();
      exchange().receive(rank_of(from), lane, version(state, from), own_bytes, state.receiving);
    }
    for (int distance = 1; distance < size(); ++distance) {
      const int to = (index() + distance) % size();
      exchange().send(rank_of(to), lane, slice(state, to),
                      slice_elements(state, to) * signed_size_of(state.wire), state.sending);
    }
  }

  void reduce(const PieceState& state) {
    const std::int64_t elements = slice_elements(state, index());
    if (elements == 0) return;
    inputs_.clear();
    for (int from = 0; from < size(); ++from)
      inputs_.push_back(from == index() ? slice(state, from) : version(state, from));
    reduction::Arithmetic arithmetic = arithmetic_of(batch(), state.wire);
    arithmetic.result = state.window.tensor->dtype;
    reduction::reduce(arithmetic, inputs_, elements, state.window.output());
    worked(size() * elements * signed_size_of(state.wire), state.wire);
  }

  Windows windows_;
  std::array<PieceState, max_pieces> pieces_{};
  std::vector<const std::byte*> inputs_{};
};

}  // namespace

std::unique_ptr<Execution> make_reducescatter(Endpoint& endpoint, Batch batch, int index) {
  return std::make_unique<Reducescatter>(endpoint, std::move(batch), index);
}

}  // namespace kolo::internal::backend::mpi
