// SPDX-License-Identifier: Apache-2.0
#include "training/optimizer/pass_summary.hpp"

namespace kolo::internal {

std::int32_t mark_of_this_rank(const ProcessSet& set) { return set.size() - set.rank(); }

int marked_rank(const ProcessSet& set, std::int32_t mark) {
  const std::vector<int> members = set.ranks();
  return members[members.size() - static_cast<std::size_t>(mark)];
}

void PassSummary::reset(std::size_t buckets, std::size_t slots, bool has_hook) {
  buckets_ = buckets;
  slots_ = slots;
  numbers_.assign(1 + buckets + slots + (has_hook ? buckets : 0), 0);
}

void PassSummary::submit(const std::string& name, const ProcessSet& set, std::int64_t step) {
  const TensorView view(numbers_);
  const GroupedAllreduceOptions max{.name = name, .op = ReduceOp::max, .process_set = set};
  future_ = detail::call_async(detail::GroupedAllreduceCall{{&view, 1}, max, step});
  state_ = State::submitted;
}

bool PassSummary::arrives_within(std::chrono::duration<double> timeout) noexcept {
  if (state_ != State::submitted) return true;
  try {
    return future_.wait_for(timeout);
  } catch (...) {
    return true;  // `wait` throws the error
  }
}

void PassSummary::wait() {
  future_.get();
  state_ = State::agreed;
}

void PassSummary::close() {
  future_ = {};
  state_ = State::open;
}

}  // namespace kolo::internal
