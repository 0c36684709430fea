#include "backend/hierarchical/ring_crossing.hpp"

#include <array>

namespace kolo::backend::hierarchical {

// The section of place s begins at place s and is complete at place s - 1, who is the last to
// combine it and the first to send it round.

RingCrossing::RingCrossing(mpi::Exchange& exchange, const Owners& owners, int lane,
                           std::int64_t elements, const reduction::Arithmetic& last)
    : Crossing(exchange, owners, lane, elements, last),
      versions_(exchange.take(combined_bytes(elements))),
      receiving_(static_cast<std::size_t>(2 * rounds())) {
  const int before = owners_.rank(owners_.own - 1);
  for (int step = 0; step < 2 * rounds(); ++step) {
    const Slice slice = arriving(step);
    int& pending = receiving_[static_cast<std::size_t>(step)];
    if (step < rounds()) {
      exchange_.receive(before, lane_, versions_ + combined_bytes(slice.begin),
                        combined_bytes(slice.elements), pending);
    } else {
      exchange_.receive(before, lane_ + 1, result_ + result_bytes(slice.begin),
                        result_bytes(slice.elements), pending);
    }
  }
}

RingCrossing::~RingCrossing() { exchange_.give_back(versions_); }

Slice RingCrossing::arriving(int step) const {
  return step < rounds() ? section(owners_.own - 1 - step)
                         : section(owners_.own - (step - rounds()));
}

void RingCrossing::send() {
  const Slice own = section(owners_.own);
  exchange_.send(owners_.rank(owners_.own + 1), lane_, combined_ + combined_bytes(own.begin),
                 combined_bytes(own.elements), sending_);
}

bool RingCrossing::advance() {
  while (step_ < 2 * rounds() && receiving_[static_cast<std::size_t>(step_)] == 0) {
    if (step_ < rounds())
      combine_and_pass_on(step_);
    else if (step_ + 1 < 2 * rounds())
      pass_on_result(arriving(step_));
    ++step_;
  }
  return step_ == 2 * rounds() && sending_ == 0;
}

void RingCrossing::combine_and_pass_on(int step) {
  const Slice slice = arriving(step);
  std::byte* const own = combined_ + combined_bytes(slice.begin);
  const std::array<const std::byte*, 2> inputs{versions_ + combined_bytes(slice.begin), own};
  if (step + 1 == rounds()) {
    finish(inputs, slice.elements, own, result_ + result_bytes(slice.begin));
    pass_on_result(slice);
  } else {
    combine(inputs, slice.elements, own);
    exchange_.send(owners_.rank(owners_.own + 1), lane_, own, combined_bytes(slice.elements),
                   sending_);
  }
}

void RingCrossing::pass_on_result(const Slice& slice) {
  exchange_.send(owners_.rank(owners_.own + 1), lane_ + 1, result_ + result_bytes(slice.begin),
                 result_bytes(slice.elements), sending_);
}

}  // namespace kolo::backend::hierarchical
