#include "backend/hierarchical/crossing.hpp"

#include <stdexcept>

#include "backend/hierarchical/direct_crossing.hpp"
#include "backend/hierarchical/doubling_crossing.hpp"
#include "backend/hierarchical/ring_crossing.hpp"
#include "base/dtype.hpp"
#include "fusion/pack.hpp"

namespace kolo::backend::hierarchical {

DType Crossing::combined_type(DType wire) { return is_half(wire) ? DType::f32 : wire; }

Crossing::Crossing(mpi::Exchange& exchange, const Owners& owners, int lane, std::int64_t elements,
                   const reduction::Arithmetic& last)
    : exchange_(exchange),
      owners_(owners),
      lane_(lane),
      elements_(elements),
      last_(last),
      combined_(exchange.take(combined_bytes(elements))),
      result_(exchange.take(result_bytes(elements))) {}

Crossing::~Crossing() {
  exchange_.give_back(combined_);
  exchange_.give_back(result_);
}

std::int64_t Crossing::combined_bytes(std::int64_t elements) const {
  return elements * signed_size_of(combined_type(last_.dtype));
}

std::int64_t Crossing::result_bytes(std::int64_t elements) const {
  return elements * signed_size_of(last_.dtype);
}

Slice Crossing::section(int owner) const {
  return slice_of(elements_, (owner + owners_.size()) % owners_.size(), owners_.size());
}

void Crossing::combine(reduction::Inputs inputs, std::int64_t elements, std::byte* output) const {
  if (elements == 0) return;
  reduction::Arithmetic arithmetic = last_;
  arithmetic.dtype = combined_type(last_.dtype);
  arithmetic.postscale = 1.0;
  arithmetic.divisor = 1;
  reduction::reduce(arithmetic, inputs, elements, output);
}

void Crossing::finish(reduction::Inputs inputs, std::int64_t elements, std::byte* scratch,
                      std::byte* output) const {
  if (elements == 0) return;
  reduction::Arithmetic arithmetic = last_;
  arithmetic.dtype = combined_type(last_.dtype);
  if (arithmetic.dtype == last_.dtype) {
    reduction::reduce(arithmetic, inputs, elements, output);
    return;
  }
  reduction::reduce(arithmetic, inputs, elements, scratch);
  fusion::convert(scratch, arithmetic.dtype, elements, output, last_.dtype);
}

std::unique_ptr<Crossing> make_crossing(Way way, mpi::Exchange& exchange, const Owners& owners,
                                        int lane, std::int64_t elements,
                                        const reduction::Arithmetic& last) {
  switch (way) {
    case Way::whole:
    case Way::direct:
      return std::make_unique<DirectCrossing>(exchange, owners, lane, elements, last,
                                              way == Way::whole);
    case Way::ring: return std::make_unique<RingCrossing>(exchange, owners, lane, elements, last);
    case Way::doubling:
      return std::make_unique<DoublingCrossing>(exchange, owners, lane, elements, last);
  }
  throw std::logic_error("no such way");
}

}  // namespace kolo::backend::hierarchical
