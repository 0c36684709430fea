// SPDX-License-Identifier: Apache-2.0
// The order in which all ranks go through the units of a model, and use them in forward.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "training/sharded/sharding_sets.hpp"

namespace kolo::internal {

/// Units by number, by position and by use: forward may use a unit several times, and its position
/// is that of its first use. Until the ranks have agreed, there is one use of each, in the order of
/// `add`.
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

  /// The number of uses in a forward, and the unit of one.
  [[nodiscard]] std::size_t uses() const { return uses_.size(); }
  [[nodiscard]] std::size_t used_at(std::size_t use) const { return uses_[use]; }
  /// The first use of the unit that is not before `next`.
  [[nodiscard]] std::optional<std::size_t> find_use(std::size_t unit, std::size_t next) const;
  /// True if the unit has one of `count` uses from `next` on.
  [[nodiscard]] bool is_among(std::size_t unit, std::size_t next, std::size_t count) const {
    const auto use = find_use(unit, next);
    return use && *use - next < count;
  }

  /// Notes a use in the first forward. Does nothing after the agreement.
  void note_use(std::size_t unit);
  [[nodiscard]] bool is_noted(std::size_t unit) const;
  /// Collective. Takes the uses that one rank has noted.
  void agree(const std::string& operation, const ShardingSets& sets);

 private:
  std::vector<std::size_t> order_{};
  std::vector<std::size_t> positions_{};
  std::vector<std::size_t> uses_{};
  std::vector<std::size_t> noted_{};
  bool is_known_;
  bool is_agreed_;
};

}  // namespace kolo::internal
