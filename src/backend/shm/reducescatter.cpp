// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/shm/arena.hpp"
#include "backend/shm/pipeline.hpp"
#include "fusion/pack.hpp"

namespace kolo::internal::backend::shm {
namespace {

/// A piece is a window on the rows of all ranks. Every rank deposits its contributions for the
/// others, and reduces their contributions for itself directly into its output.
class Reducescatter : public Pipeline {
 public:
  Reducescatter(Arena& arena, Batch given, LocalRanks local_ranks, std::optional<Groups> groups)
      : Pipeline(arena, std::move(given), std::move(local_ranks)),
        groups_(std::move(groups)),
        all_(static_cast<std::size_t>(size())),
        windows_(batch(), piece_bytes()) {
    std::iota(all_.begin(), all_.end(), 0);
  }

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
    worked((size() + 1) * elements * signed_size_of(window.wire));
    if (groups_) {
      reduce_in_levels(number);
    } else {
      find_inputs(number, all_);
      reduction::reduce(arithmetic_of(batch(), window.wire, window.tensor->dtype), inputs_,
                        elements, window.output());
    }
    for (int rank = 0; rank < size(); ++rank)
      if (rank != index())
        take_over(part_for(window, number, rank, index()), elements * signed_size_of(window.wire));
  }

  /// Reduces within groups, then between them, so that the bits are those of a levelled allreduce.
  void reduce_in_levels(std::size_t number) {
    const Window& window = pieces_[number];
    const std::int64_t elements = window.elements_of(index());
    const DType combined = combined_type(window.wire, window.tensor->dtype);
    const std::int64_t bytes = elements * signed_size_of(combined);
    partials_.resize(static_cast<std::size_t>(groups_->size() * bytes));
    std::vector<const std::byte*> partials;
    for (int group = 0; group < groups_->size(); ++group) {
      std::byte* const partial = partials_.data() + group * bytes;
      find_inputs(number, groups_->ranks(group));
      reduction::reduce(inner_arithmetic(batch(), window.wire, combined), inputs_, elements,
                        partial);
      partials.push_back(partial);
    }
    reduction::reduce(outer_arithmetic(batch(), combined), partials, elements, partials_.data());
    fusion::convert(partials_.data(), combined, elements, window.output(), window.tensor->dtype);
  }

  /// Finds the contributions of these ranks for this one.
  void find_inputs(std::size_t number, const std::vector<int>& ranks) {
    const Window& window = pieces_[number];
    inputs_.clear();
    for (const int rank : ranks)
      inputs_.push_back(rank == index() && reads_input(window, rank)
                            ? window.input_of(rank)
                            : part_for(window, number, rank, index()));
  }

  /// A rank's own contribution is read from its input unless it needs conversion.
  [[nodiscard]] bool reads_input(const Window& window, int owner) const {
    return owner == index() && !window.converts();
  }

  /// The contribution of `rank` for `owner`, in the slot of `rank`.
  [[nodiscard]] std::byte* part_for(const Window& window, std::size_t number, int rank,
                                    int owner) const {
    return memory(rank, number) + owner * window.max_bytes();
  }

  std::optional<Groups> groups_;
  std::vector<int> all_;
  Windows windows_;
  std::array<Window, slot_count> pieces_{};
  std::vector<const std::byte*> inputs_{};
  std::vector<std::byte> partials_{};  // the partial result of each group
};

}  // namespace

std::unique_ptr<Execution> make_reducescatter(Arena& arena, Batch batch, LocalRanks local_ranks,
                                              std::optional<Groups> groups) {
  return std::make_unique<Reducescatter>(arena, std::move(batch), std::move(local_ranks),
                                         std::move(groups));
}

}  // namespace kolo::internal::backend::shm
