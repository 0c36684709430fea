// SPDX-License-Identifier: Apache-2.0
#include "backend/internode/reduction.hpp"

#include <bit>

#include "base/dtype.hpp"
#include "fusion/pack.hpp"

namespace kolo::internal::backend::internode {
namespace {

/// `whole` and `doubling` send more bytes than `direct` and `halving`, but in fewer steps. They are
/// used up to this size: of all that an owner sends (`whole`), or of the slice (`doubling`).
constexpr std::int64_t max_bytes_to_save_latency = 16 << 10;

}  // namespace

InterNodeAlgorithm select_algorithm(int owners, std::int64_t elements, DType wire) {
  using enum InterNodeAlgorithm;
  // Between two owners, `direct` sends less than `whole` only for half types: results are short.
  if (owners == 2) return is_half(wire) ? direct : whole;
  const std::int64_t bytes = elements * signed_size_of(combined_type(wire));
  if (owners > max_owners_at_once) return bytes <= max_bytes_to_save_latency ? doubling : halving;
  return (owners - 1) * bytes <= max_bytes_to_save_latency ? whole : direct;
}

std::vector<int> factors_of(int hosts) {
  std::vector<int> factors;
  for (int factor = 2; hosts > 1; ++factor)
    for (; hosts % factor == 0; hosts /= factor) factors.push_back(factor);
  return factors;
}

int pairs_of(int inputs) {
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(inputs)));
  return power == inputs ? inputs / 2 : inputs - power;
}

std::vector<StepGroup> step_groups(int owners) {
  std::vector<StepGroup> groups;
  int distance = 1;
  for (const int factor : factors_of(owners)) {
    groups.push_back({distance, factor});
    distance *= factor;
  }
  return groups;
}

InterNodeReduction::InterNodeReduction(const SliceTask& task)
    : exchange_(task.exchange),
      owners_(task.owners),
      lane_(task.lane),
      elements_(task.elements),
      last_(task.last),
      combined_(take(combined_bytes(elements_))),
      result_(take(result_bytes(elements_))) {}

void InterNodeReduction::give_back() {
  for (const std::byte* memory : taken_) exchange_.give_back(memory);
  taken_.clear();
}

std::byte* InterNodeReduction::take(std::int64_t bytes) {
  return taken_.emplace_back(exchange_.take(bytes));
}

std::int64_t InterNodeReduction::combined_bytes(std::int64_t elements) const {
  return elements * signed_size_of(combined_type(last_.dtype));
}

std::int64_t InterNodeReduction::result_bytes(std::int64_t elements) const {
  return elements * signed_size_of(last_.dtype);
}

Slice InterNodeReduction::section(int owner) const {
  return slice_of(elements_, (owner + owners_.size()) % owners_.size(), owners_.size());
}

void InterNodeReduction::combine(reduction::Inputs inputs, std::int64_t elements,
                                 std::byte* output) const {
  if (elements == 0) return;
  reduction::Arithmetic arithmetic = last_;
  arithmetic.dtype = combined_type(last_.dtype);
  arithmetic.postscale = 1.0;
  arithmetic.divisor = 1;
  reduction::reduce(arithmetic, inputs, elements, output);
}

void InterNodeReduction::finish(reduction::Inputs inputs, std::int64_t elements, std::byte* scratch,
                                std::byte* output) const {
  if (elements == 0) return;
  reduction::Arithmetic arithmetic = last_;
  arithmetic.dtype = combined_type(last_.dtype);
  // Half types are reduced in f32 and rounded once, when they are converted to the output.
  std::byte* const reduced = arithmetic.dtype == last_.dtype ? output : scratch;
  reduction::reduce(arithmetic, inputs, elements, reduced);
  fusion::convert(reduced, arithmetic.dtype, elements, output, last_.dtype);
}

}  // namespace kolo::internal::backend::internode
