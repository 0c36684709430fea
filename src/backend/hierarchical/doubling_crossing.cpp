#include "backend/hierarchical/doubling_crossing.hpp"

#include <array>
#include <bit>
#include <utility>

namespace kolo::backend::hierarchical {

DoublingCrossing::DoublingCrossing(mpi::Exchange& exchange, const Owners& owners, int lane,
                                   std::int64_t elements, const reduction::Arithmetic& last)
    : Crossing(exchange, owners, lane, elements, last),
      core_(static_cast<int>(std::bit_floor(static_cast<unsigned>(owners.size())))) {
  plan();
  versions_ = exchange_.take(static_cast<std::int64_t>(steps_.size()) * combined_bytes(elements_));
  for (std::size_t step = 0; step < steps_.size(); ++step) {
    const int partner = owners_.rank(steps_[step].partner);
    int& pending = steps_[step].receiving;
    if (is_one_of_the_rest()) {
      exchange_.receive(partner, lane_ + 1, result_, result_bytes(elements_), pending);
    } else {
      exchange_.receive(partner, lane_, version(step), combined_bytes(elements_), pending);
    }
  }
}

DoublingCrossing::~DoublingCrossing() { exchange_.give_back(versions_); }

void DoublingCrossing::plan() {
  if (is_one_of_the_rest()) {
    steps_.push_back({.partner = owners_.own - core_});
    return;
  }
  if (owners_.own + core_ < owners_.size())
    steps_.push_back({.partner = owners_.own + core_, .sends = false});
  for (int distance = 1; distance < core_; distance *= 2)
    steps_.push_back({.partner = owners_.own ^ distance});
}

std::byte* DoublingCrossing::version(std::size_t step) const {
  return versions_ + static_cast<std::int64_t>(step) * combined_bytes(elements_);
}

void DoublingCrossing::send_to(int owner, const std::byte* data, std::int64_t bytes) {
  exchange_.send(owners_.rank(owner), lane_, data, bytes, sending_);
}

void DoublingCrossing::send() {
  if (steps_.front().sends) send_to(steps_.front().partner, combined_, combined_bytes(elements_));
}

bool DoublingCrossing::advance() {
  // What is combined next takes the place of what is being sent.
  while (step_ < steps_.size() && steps_[step_].receiving == 0 && sending_ == 0) take(step_++);
  return step_ == steps_.size() && sending_ == 0;
}

void DoublingCrossing::take(std::size_t step) {
  if (is_one_of_the_rest()) return;
  // Both partners combine in the same order.
  std::array<const std::byte*, 2> inputs{combined_, version(step)};
  if (steps_[step].partner < owners_.own) std::swap(inputs[0], inputs[1]);
  if (step + 1 < steps_.size()) {
    combine(inputs, elements_, combined_);
    send_to(steps_[step + 1].partner, combined_, combined_bytes(elements_));
    return;
  }
  finish(inputs, elements_, combined_, result_);
  if (const int rest = owners_.own + core_; rest < owners_.size())
    exchange_.send(owners_.rank(rest), lane_ + 1, result_, result_bytes(elements_), sending_);
}

}  // namespace kolo::backend::hierarchical
