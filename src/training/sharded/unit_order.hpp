// SPDX-License-Identifier: Apache-2.0
// The order in which all ranks go through the units of a model.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "training/sharded/sharding_sets.hpp"

namespace kolo::internal {

/// The uses of units in forward, and the turns of backward, which follow from them. Forward may use
/// a unit several times. Until the ranks have agreed, there is one use of each unit, in the order
/// of `add`, and there are no turns.
///
/// A turn gathers or reduces a unit that contains no others. Backward comes to the uses in reverse:
/// a unit is gathered before its last use, and its gradients are complete after its first one.
class UnitOrder {
 public:
  struct Turn {
    std::size_t unit;
    bool reduces;
  };

  /// `is_known`: the order of `add` is agreed.
  explicit UnitOrder(bool is_known) : is_known_(is_known), is_agreed_(is_known) {}

  void add(bool contains_units);
  /// Forgets the agreement.
  void reset();
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

  [[nodiscard]] const std::vector<Turn>& turns() const { return turns_; }
  /// The turn that gathers the unit; the number of turns if there is none.
  [[nodiscard]] std::size_t turn_of(std::size_t unit) const;

  /// Notes a use in the first forward. Does nothing after the agreement.
  void note_use(std::size_t unit);
  [[nodiscard]] bool is_noted(std::size_t unit) const;
  /// Collective. Takes the uses that one rank has noted.
  void agree(const std::string& operation, const ShardingSets& sets);

 private:
  void list_turns();

  std::vector<bool> contains_units_{};  // by unit
  std::vector<std::size_t> uses_{};
  std::vector<Turn> turns_{};
  std::vector<std::size_t> noted_{};
  bool is_known_;
  bool is_agreed_;
};

}  // namespace kolo::internal
