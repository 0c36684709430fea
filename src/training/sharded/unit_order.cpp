// SPDX-License-Identifier: Apache-2.0
#include "training/sharded/unit_order.hpp"

#include <algorithm>
#include <cstdint>

namespace kolo::internal {

void UnitOrder::add() {
  positions_.push_back(order_.size());
  order_.push_back(order_.size());
}

void UnitOrder::reset() {
  for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = positions_[i] = i;
  noted_.clear();
  is_agreed_ = is_known_;
}

void UnitOrder::note_use(std::size_t unit) {
  if (!is_agreed_ && !is_noted(unit)) noted_.push_back(unit);
}

bool UnitOrder::is_noted(std::size_t unit) const {
  return std::ranges::find(noted_, unit) != noted_.end();
}

void UnitOrder::agree(const std::string& operation, const ShardingSets& sets) {
  std::vector<std::int32_t> order(noted_.begin(), noted_.end());
  for (std::size_t i = 0; i < order_.size(); ++i)
    if (!is_noted(i)) order.push_back(static_cast<std::int32_t>(i));
  sets.take_from_one(order, operation);
  order_.assign(order.begin(), order.end());
  for (std::size_t i = 0; i < order_.size(); ++i) positions_.at(order_[i]) = i;
  is_agreed_ = true;
}

}  // namespace kolo::internal
