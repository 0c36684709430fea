// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "backend/batch.hpp"
#include "backend/mpi/collective.hpp"
#include "base/dtype.hpp"
#include "fusion/pack.hpp"
#include "reduction/reduce.hpp"

namespace kolo::internal::backend::mpi {
namespace {

/// A piece consists of the elements at the same place in the rows of every rank, for one tensor.
/// Every rank sends each slice to its owner and reduces its own slice.
class Reducescatter : public PiecewiseReduction {
 public:
  Reducescatter(Endpoint& endpoint, Batch given)
      : PiecewiseReduction(endpoint, std::move(given), pieces_on_own_lanes, pieces_on_own_lanes),
        windows_(batch(), piece_bytes()) {}

 private:
  struct PieceState {
    Window window{};
    std::byte* packed = nullptr;  // slices, `max_bytes` apart; null without conversion
    Versions versions{};
    int sending = 0;
    bool reduced = false;
  };

  NextPiece begin(std::size_t number) override {
    PieceState& state = pieces_[number];
    if (!windows_.next(state.window)) return NextPiece::none;
    state.reduced = false;
    pack(state);
    post(state, static_cast<int>(number));
    return NextPiece::piece;
  }

  Progress advance(std::size_t number) override {
    PieceState& state = pieces_[number];
    bool moved = false;
    if (!state.reduced && state.versions.receiving == 0) {
      reduce(state);
      state.reduced = moved = true;
    }
    if (state.reduced && state.sending == 0) {
      exchange().give_back(state.packed);
      exchange().give_back(state.versions.memory);
      return Progress::done;
    }
    return moved ? Progress::moved : Progress::waiting;
  }

  /// The slice of `owner` in the form in which it is sent.
  [[nodiscard]] const std::byte* slice(const PieceState& state, int owner) const {
    return state.packed == nullptr ? state.window.input_of(owner)
                                   : state.packed + owner * state.window.max_bytes();
  }

  [[nodiscard]] static std::int64_t slice_bytes(const Window& window, int owner) {
    return window.elements_of(owner) * signed_size_of(window.wire);
  }

  void pack(PieceState& state) {
    const Window& window = state.window;
    state.packed = nullptr;
    if (!window.converts()) return;
    state.packed = exchange().take(size() * window.max_bytes());
    for (int owner = 0; owner < size(); ++owner)
      fusion::convert(window.input_of(owner), window.tensor->dtype, window.elements_of(owner),
                      state.packed + owner * window.max_bytes(), window.wire);
    worked(size() * window.max_bytes(), window.wire);
  }

  void post(PieceState& state, int lane) {
    receive_versions(state.versions, slice_bytes(state.window, index()), lane);
    for_each_other([&](int to, int) {
      exchange().send(rank_of(to), lane, slice(state, to), slice_bytes(state.window, to),
                      state.sending);
    });
  }

  void reduce(const PieceState& state) {
    const Window& window = state.window;
    const std::int64_t elements = window.elements_of(index());
    if (elements == 0) return;
    reduction::reduce(arithmetic_of(batch(), window.wire, window.tensor->dtype),
                      in_rank_order(state.versions, slice(state, index())), elements,
                      window.output());
    worked(size() * slice_bytes(window, index()), window.wire);
  }

  Windows windows_;
  std::array<PieceState, pieces_on_own_lanes> pieces_{};
};

}  // namespace

std::unique_ptr<Execution> make_reducescatter(Endpoint& endpoint, Batch batch) {
  return std::make_unique<Reducescatter>(endpoint, std::move(batch));
}

}  // namespace kolo::internal::backend::mpi
