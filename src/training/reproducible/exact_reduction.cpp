// SPDX-License-Identifier: Apache-2.0
#include "training/reproducible/exact_reduction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "base/format.hpp"
#include "base/rank_set.hpp"
#include "kolo/collectives.hpp"
#include "kolo/error.hpp"
#include "kolo/optimizer.hpp"
#include "training/agreement.hpp"

namespace kolo::internal {
namespace {

// Memory that is being reduced must outlive the operations, so all of them end before an error
// leaves.
void wait_for_all(std::vector<Future<void>>& operations) {
  std::exception_ptr first;
  for (Future<void>& operation : operations) try {
      operation.get();
    } catch (...) {
      if (first == nullptr) first = std::current_exception();
    }
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace

ExactReduction::ExactReduction(const ReproducibleOptions& options) : options_(options) {
  if (options.shards < 1 || options.shards > max_exact_summands)
    throw InvalidArgument(fmt::format("ReproducibleGradients: shards is {}, but must be 1 to {}",
                                      options.shards, max_exact_summands));
}

std::vector<int> ExactReduction::own_shards() const {
  std::vector<int> own;
  const int place = options_.process_set.rank();
  if (place < 0)
    throw InvalidArgument("ReproducibleGradients: this rank is not in the process set");
  const int ranks = options_.process_set.size();
  for (int shard = place; shard < options_.shards; shard += ranks) own.push_back(shard);
  return own;
}

void ExactReduction::expect(const std::string& name, std::int64_t elements) {
  const bool is_repeated =
      std::ranges::any_of(sums_, [&](const Named& one) { return one.name == name; });
  if (name.empty() || is_repeated)
    throw InvalidArgument("ReproducibleGradients: the name '" + name + "' of a gradient is " +
                              (name.empty() ? "empty" : "repeated"),
                          name);
  sums_.push_back({name, ExactSum(elements)});
}

void ExactReduction::add(std::size_t i, const ConstTensorView& gradient) {
  sums_[i].sum.add(gradient);
}

void ExactReduction::run(const std::function<void(int shard)>& compute) {
  const std::vector<int> own = own_shards();
  for (Named& named : sums_) named.sum.clear();
  std::exception_ptr failure;
  try {
    for (const int shard : own) compute(shard);
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure == nullptr) return reduce(false);
  try {
    reduce(true);
  } catch (...) {
    // For example, a rank has left. The exception of this rank's computation tells more.
  }
  std::rethrow_exception(failure);
}

// The last operation tells whether a rank has failed, and whether all divide the batch alike: only
// equal numbers have the square of their sum equal to their number times the sum of their squares.
void ExactReduction::reduce(bool failed) {
  const ProcessSet& set = options_.process_set;
  const std::string prefix = "reproducible.";
  std::vector<Future<void>> operations;
  for (Named& named : sums_)
    operations.push_back(allreduce_async(
        named.sum.words(), {.name = prefix + named.name, .op = ReduceOp::sum, .process_set = set}));
  const std::int64_t shards = options_.shards;
  std::array<std::int64_t, 3> counts{failed ? 1 : 0, shards, shards * shards};
  operations.push_back(allreduce_async(
      TensorView(counts), {.name = prefix + "shards", .op = ReduceOp::sum, .process_set = set}));
  wait_for_all(operations);
  if (counts[1] * counts[1] != counts[2] * set.size())
    throw Mismatch(
        fmt::format("ReproducibleGradients: this rank divides the batch into {} shards, "
                    "but others into another number, or some ranks have joined",
                    shards));
  if (counts[0] == 0) return;
  const std::vector<int> ranks = ranks_that(failed, prefix + "failed", set);
  if (failed) return;
  throw BackwardFailed(fmt::format("ReproducibleGradients: the computation of a shard threw on {}",
                                   ranks_in_words(RankSet::of(ranks))),
                       {}, ranks);
}

void ExactReduction::write_mean(std::size_t i, const TensorView& tensor) const {
  sums_[i].sum.write_mean(tensor, options_.shards);
}

}  // namespace kolo::internal
