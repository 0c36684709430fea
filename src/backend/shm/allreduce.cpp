// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <memory>
#include <utility>

#include "backend/shm/sliced_allreduce.hpp"

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

}  // namespace kolo::internal::backend::shm
