// SPDX-License-Identifier: Apache-2.0
#include "training/sharded/unit_order.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace kolo::internal {

void UnitOrder::add(bool contains_units) {
  const std::size_t unit = contains_units_.size();
  uses_.push_back(unit);
  contains_units_.push_back(contains_units);
  if (is_agreed_ && !contains_units)
    turns_.insert(turns_.begin(),
                  {{.unit = unit, .reduces = false}, {.unit = unit, .reduces = true}});
}

void UnitOrder::reset() {
  uses_.resize(contains_units_.size());
  std::iota(uses_.begin(), uses_.end(), std::size_t{0});
  noted_.clear();
  turns_.clear();
  is_agreed_ = is_known_;
  if (is_agreed_) list_turns();
}

std::optional<std::size_t> UnitOrder::find_use(std::size_t unit, std::size_t next) const {
  const auto from = uses_.begin() + static_cast<std::ptrdiff_t>(std::min(next, uses_.size()));
  const auto found = std::find(from, uses_.end(), unit);
  if (found == uses_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - uses_.begin());
}

std::size_t UnitOrder::turn_of(std::size_t unit) const {
  const auto found = std::ranges::find_if(
      turns_, [unit](const Turn& turn) { return turn.unit == unit && !turn.reduces; });
  return static_cast<std::size_t>(found - turns_.begin());
}

void UnitOrder::note_use(std::size_t unit) {
  if (!is_agreed_) noted_.push_back(unit);
}

bool UnitOrder::is_noted(std::size_t unit) const {
  return std::ranges::find(noted_, unit) != noted_.end();
}

void UnitOrder::agree(const std::string& operation, const ShardingSets& sets) {
  std::vector<std::int32_t> uses(noted_.begin(), noted_.end());
  for (std::size_t i = 0; i < contains_units_.size(); ++i)
    if (!is_noted(i)) uses.push_back(static_cast<std::int32_t>(i));
  std::vector<std::int32_t> count{static_cast<std::int32_t>(uses.size())};
  sets.take_from_one(count, operation + ".count");
  uses.resize(static_cast<std::size_t>(count.front()));
  sets.take_from_one(uses, operation);
  uses_.assign(uses.begin(), uses.end());
  noted_.clear();
  is_agreed_ = true;
  list_turns();
}

void UnitOrder::list_turns() {
  turns_.clear();
  for (std::size_t use = uses_.size(); use-- > 0;) {
    const std::size_t unit = uses_[use];
    if (contains_units_[unit]) continue;
    if (!find_use(unit, use + 1)) turns_.push_back({.unit = unit, .reduces = false});
    if (find_use(unit, 0) == use) turns_.push_back({.unit = unit, .reduces = true});
  }
}

}  // namespace kolo::internal
