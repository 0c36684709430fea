// SPDX-License-Identifier: Apache-2.0
#include "training/sharded/unit_order.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace kolo::internal {

void UnitOrder::add() {
  positions_.push_back(order_.size());
  uses_.push_back(order_.size());
  order_.push_back(order_.size());
}

void UnitOrder::reset() {
  std::iota(positions_.begin(), positions_.end(), 0U);
  uses_ = order_ = positions_;
  noted_.clear();
  is_agreed_ = is_known_;
}

std::optional<std::size_t> UnitOrder::find_use(std::size_t unit, std::size_t next) const {
  const auto from = uses_.begin() + static_cast<std::ptrdiff_t>(std::min(next, uses_.size()));
  const auto found = std::find(from, uses_.end(), unit);
  if (found == uses_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - uses_.begin());
}

void UnitOrder::note_use(std::size_t unit) {
  if (!is_agreed_) noted_.push_back(unit);
}

bool UnitOrder::is_noted(std::size_t unit) const {
  return std::ranges::find(noted_, unit) != noted_.end();
}

void UnitOrder::agree(const std::string& operation, const ShardingSets& sets) {
  std::vector<std::int32_t> uses(noted_.begin(), noted_.end());
  for (std::size_t i = 0; i < order_.size(); ++i)
    if (!is_noted(i)) uses.push_back(static_cast<std::int32_t>(i));
  std::vector<std::int32_t> count{static_cast<std::int32_t>(uses.size())};
  sets.take_from_one(count, operation + ".count");
  uses.resize(static_cast<std::size_t>(count.front()));
  sets.take_from_one(uses, operation);
  uses_.assign(uses.begin(), uses.end());
  noted_.clear();
  order_.clear();
  for (const std::size_t unit : uses_) {
    if (std::ranges::find(order_, unit) != order_.end()) continue;
    positions_.at(unit) = order_.size();
    order_.push_back(unit);
  }
  is_agreed_ = true;
}

}  // namespace kolo::internal
