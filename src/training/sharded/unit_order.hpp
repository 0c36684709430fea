// SPDX-License-Identifier: Apache-2.0
// The order in which all ranks go through the units of a model.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "training/sharded/sharding_sets.hpp"

namespace kolo::internal {

/// Units by number and by position. Until the ranks have agreed, the order is that of `add`.
class UnitOrder {
 public:
  /// `is_known`: the order of `add` is agreed.
  explicit UnitOrder(bool is_known) : is_known_(is_known), is_agreed_(is_known) {}

  void add();
  /// Forgets the agreement.
  void reset();

  [[nodiscard]] std::size_t size() const { return order_.size(); }
  [[nodiscard]] std::size_t unit_at(std::size_t position) const { return order_[position]; }
  [[nodiscard]] std::size_t position_of(std::size_t unit) const { return positions_[unit]; }
  [[nodiscard]] bool is_agreed() const { return is_agreed_; }

  /// Notes a use in the first forward. Does nothing after the agreement.
  void note_use(std::size_t unit);
  [[nodiscard]] bool is_noted(std::size_t unit) const;
  /// Collective. Takes the order in which one rank has noted uses.
  void agree(const std::string& operation, const ShardingSets& sets);

 private:
  std::vector<std::size_t> order_{};
  std::vector<std::size_t> positions_{};
  std::vector<std::size_t> noted_{};
  bool is_known_;
  bool is_agreed_;
};

}  // namespace kolo::internal
