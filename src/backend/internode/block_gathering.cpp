// SPDX-License-Identifier: Apache-2.0
#include "backend/internode/block_gathering.hpp"

#include <algorithm>
#include <bit>

namespace kolo::internal::backend::internode {

BlockGathering::BlockGathering(mpi::Exchange& exchange, const Owners& owners, int lane,
                               const std::vector<std::int64_t>& bytes, int& sending)
    : exchange_(exchange),
      owners_(owners),
      lane_(lane),
      sending_(sending),
      steps_(static_cast<int>(std::bit_width(static_cast<unsigned>(owners.size() - 1)))) {
  begins_.push_back(0);
  for (const std::int64_t one : bytes) begins_.push_back(begins_.back() + one);
  memory_ = exchange_.take(begins_.back());
  // An owner hears from another one in one step only, so all messages may share a lane.
  for (int step = 0; step < steps_; ++step) {
    const int distance = 1 << step;
    exchange_.receive(owners_.rank(owners_.own + distance), lane_, block(distance),
                      bytes_of(distance, blocks_in(step)),
                      receiving_[static_cast<std::size_t>(step)]);
  }
}

int BlockGathering::blocks_in(int step) const {
  return std::min(1 << step, owners_.size() - (1 << step));
}

int BlockGathering::advance() {
  const auto is_received = [&](int step) {
    return receiving_[static_cast<std::size_t>(step)] == 0;
  };
  while (sent_ < steps_ && (sent_ == 0 || is_received(sent_ - 1))) {
    exchange_.send(owners_.rank(owners_.own - (1 << sent_)), lane_, memory_,
                   bytes_of(0, blocks_in(sent_)), sending_);
    ++sent_;
  }
  return sent_ == steps_ && is_received(steps_ - 1) ? owners_.size() : 1 << (sent_ - 1);
}

}  // namespace kolo::internal::backend::internode
