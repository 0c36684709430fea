// SPDX-License-Identifier: Apache-2.0
// Allreduces on one host, in one level or in two.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/shm/sliced_allreduce.hpp"
#include "base/dtype.hpp"

namespace kolo::internal::backend::shm {
namespace {

/// An allreduce on one host, in which every rank owns a slice.
class Allreduce : public SlicedAllreduce {
 public:
  Allreduce(Arena& arena, Batch given, const LocalRanks& given_ranks)
      : SlicedAllreduce(arena, std::move(given), given_ranks,
                        {static_cast<int>(given_ranks.size()), static_cast<int>(given_ranks.size()),
                         arena.allreduce_piece_bytes(), Scope::all}) {}

 private:
  Progress combine(std::size_t number) override {
    if (own_slice(number).elements == 0) return Progress::done;
    return reduce_for_all(number) ? Progress::done : Progress::waiting;
  }
};

/// The values with these indices.
std::vector<int> some_of(const std::vector<int>& values, const std::vector<int>& indices) {
  std::vector<int> some;
  some.reserve(indices.size());
  for (const int index : indices) some.push_back(values[static_cast<std::size_t>(index)]);
  return some;
}

/// Each owner reduces its slice within its group and puts this partial result into the upper half
/// of its slot. Then it combines the partial results of all owners of the same slice, in the order
/// of the groups. Tensors and results are read and written only within a group, that is, within a
/// NUMA node.
class LevelledAllreduce : public SlicedAllreduce {
 public:
  LevelledAllreduce(Arena& arena, Batch given, const LocalRanks& ranks, const Groups& groups)
      : SlicedAllreduce(arena, std::move(given), some_of(ranks, groups.ranks(groups.own())),
                        {groups.owners(), groups.owners(), piece_bytes_in(arena), Scope::group},
                        some_of(ranks, groups.counterparts())),
        local_ranks_(ranks),
        partial_at_(piece_bytes_in(arena)) {
    std::vector<int> known = groups.ranks(groups.own());
    for (const int counterpart : groups.counterparts()) {
      sources_.push_back(static_cast<int>(known.size()));
      known.push_back(counterpart);
    }
    name_ranks(some_of(batch().ranks, known));
    if (!sources_.empty()) sources_.insert(sources_.begin() + groups.own(), index());
  }

 private:
  /// Ranks of any group that have not deposited are reported before counterparts, which may
  /// themselves be waiting for these ranks.
  [[nodiscard]] Awaited combining_waits_for() const override {
    if (Awaited refused = SlicedAllreduce::combining_waits_for(); !refused.ranks.empty())
      return refused;
    Awaited late{{}, "to deposit their part"};
    for (std::size_t rank = 0; rank < local_ranks_.size(); ++rank)
      if (!has_deposited(local_ranks_[rank])) late.ranks.push_back(batch().ranks[rank]);
    return late.ranks.empty() ? lacking_partials() : late;
  }

  /// Leaves room for a partial result beside the piece in a slot. Pieces of half types are half as
  /// long, since their partial results are f32.
  static std::int64_t piece_bytes_in(const Arena& arena) {
    return std::min(arena.allreduce_piece_bytes(), arena.slot_bytes() / 16 * 8);
  }

  Progress combine(std::size_t number) override {
    if (own_slice(number).elements == 0) return Progress::done;
    if (!has_partial_[number]) return reduce_partially(number);
    if (!have_partials(number) || !combine_partials(number)) return Progress::waiting;
    has_partial_[number] = false;
    return Progress::done;
  }

  /// After a refused piece the rank does not continue with later ones, since the counter would
  /// include the refused piece.
  Progress reduce_partially(std::size_t number) {
    const DType combined = combined_type(wire(number));
    refused_ =
        refused_ || !reduce_in_group(number, inner_arithmetic(batch(), wire(number), combined),
                                     partial(index(), number));
    if (refused_) return Progress::waiting;
    has_partial_[number] = true;
    publish_partial(number);
    return Progress::moved;
  }

  [[nodiscard]] bool combine_partials(std::size_t number) {
    const Slice own = own_slice(number);
    const DType combined = combined_type(wire(number));
    const std::int64_t bytes = own.elements * signed_size_of(combined);
    inputs_.clear();
    for (const int source : sources_) inputs_.push_back(partial(source, number));
    results_.resize(static_cast<std::size_t>(bytes));
    reduction::reduce(outer_arithmetic(batch(), combined), inputs_, own.elements, results_.data());
    worked((std::ssize(inputs_) + 1) * bytes);
    return spread(number, results_.data(), combined);
  }

  [[nodiscard]] std::byte* partial(int rank, std::size_t number) const {
    return memory(rank, number) + partial_at_;
  }

  LocalRanks local_ranks_;  // all ranks of the batch
  std::int64_t partial_at_;
  std::vector<int> sources_{};  // the owners of this rank's slice, in the order of the groups
  std::array<bool, slot_count> has_partial_{};
  bool refused_ = false;  // a rank of the group refuses access to its tensors
  std::vector<const std::byte*> inputs_{};
  std::vector<std::byte> results_{};
};

}  // namespace

std::unique_ptr<Execution> make_allreduce(Arena& arena, Batch batch,
                                          const LocalRanks& local_ranks) {
  return std::make_unique<Allreduce>(arena, std::move(batch), local_ranks);
}

std::unique_ptr<Execution> prepare_allreduce(Arena& arena, const Batch& batch,
                                             const LocalRanks& local_ranks) {
  auto allreduce = std::make_unique<Allreduce>(arena, batch, local_ranks);
  allreduce->prepare();
  return allreduce;
}

std::unique_ptr<Execution> make_levelled_allreduce(Arena& arena, Batch batch,
                                                   const LocalRanks& local_ranks,
                                                   const Groups& groups) {
  return std::make_unique<LevelledAllreduce>(arena, std::move(batch), local_ranks, groups);
}

}  // namespace kolo::internal::backend::shm
