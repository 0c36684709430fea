// SPDX-License-Identifier: Apache-2.0
#include "backend/internode/reduction.hpp"

#include <stdexcept>

#include "base/dtype.hpp"
#include "fusion/pack.hpp"

namespace kolo::internal::backend::internode {

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

std::unique_ptr<InterNodeReduction> make_inter_node_reduction(InterNodeAlgorithm algorithm,
                                                              const SliceTask& task) {
  switch (algorithm) {
    case InterNodeAlgorithm::whole: return make_direct(task, true);
    case InterNodeAlgorithm::direct: return make_direct(task, false);
    case InterNodeAlgorithm::doubling: return make_doubling(task);
    case InterNodeAlgorithm::halving: return make_halving(task);
  }
  throw std::logic_error("no such algorithm");
}

}  // namespace kolo::internal::backend::internode
