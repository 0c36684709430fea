// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/shm/pipeline.hpp"
#include "fusion/pack.hpp"

namespace kolo::internal::backend::shm {
namespace {

/// A piece is a window on all ranks' rows. Every rank deposits its parts for the others, and
/// reduces their parts for it directly into its output.
class Reducescatter : public Pipeline {
 public:
  Reducescatter(Arena& arena, Batch given, LocalRanks local_ranks)
      : Pipeline(arena, std::move(given), std::move(local_ranks)),
        windows_(batch(), piece_bytes()) {}

 private:
  NextPiece begin(std::size_t number) override {
    return windows_.next(pieces_[number]) ? NextPiece::piece : NextPiece::none;
  }

  void deposit(std::size_t number) override {
    const Window& window = pieces_[number];
    for (int owner = 0; owner < size(); ++owner) {
      if (reads_input(window, owner)) continue;
      const std::int64_t elements = window.elements_of(owner);
      fusion::convert(window.input_of(owner), window.tensor->dtype, elements,
                      part_for(window, number, index(), owner), window.wire);
      worked(2 * elements * signed_size_of(window.wire));
    }
  }

  void collect(std::size_t number) override {
    const Window& window = pieces_[number];
    const std::int64_t elements = window.elements_of(index());
    if (elements == 0) return;
    inputs_.clear();
    for (int rank = 0; rank < size(); ++rank)
      inputs_.push_back(rank == index() && reads_input(window, rank)
                            ? window.input_of(rank)
                            : part_for(window, number, rank, index()));
    reduction::reduce(arithmetic_of(batch(), window.wire, window.tensor->dtype), inputs_, elements,
                      window.output());
    worked((size() + 1) * elements * signed_size_of(window.wire));
  }

  /// A rank's own part need not be deposited unless it is converted.
  [[nodiscard]] bool reads_input(const Window& window, int owner) const {
    return owner == index() && !window.converts();
  }

  /// In the slot of `rank`, its part for `owner`.
  [[nodiscard]] std::byte* part_for(const Window& window, std::size_t number, int rank,
                                    int owner) const {
    return memory(rank, number) + owner * window.max_bytes();
  }

  Windows windows_;
  std::array<Window, slot_count> pieces_{};
  std::vector<const std::byte*> inputs_{};
};

}  // namespace

std::unique_ptr<Execution> make_reducescatter(Arena& arena, Batch batch, LocalRanks local_ranks) {
  return std::make_unique<Reducescatter>(arena, std::move(batch), std::move(local_ranks));
}

}  // namespace kolo::internal::backend::shm
