// SPDX-License-Identifier: Apache-2.0
// The state of ShardedModel: its units, and where the program is in forward and backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kolo/training/sharded_model.hpp"
#include "training/agreement.hpp"
#include "training/first_error.hpp"
#include "training/parameter_hashes.hpp"
#include "training/sharded/host_unit.hpp"
#include "training/sharded/unit_schedule.hpp"

namespace kolo {

struct ShardedModel::State {
  enum class Phase : std::uint8_t { outside, forward, backward };
  static constexpr std::size_t root = internal::UnitSchedule::root;

  State(const ShardedModelOptions& given, std::string name);

  /// Makes the units with the values of `fill`, whose hashes it keeps.
  void divide(const std::vector<Unit>& given, const Fill& fill);
  [[nodiscard]] std::vector<internal::Item> items() const;
  /// Collective. Throws Mismatch unless all ranks have the same initial values.
  void compare_values() const;

  /// The unit, for a use in this phase. Throws InvalidArgument, naming the unit and `call`.
  internal::HostUnit& require_unit(std::size_t unit, Phase in, const char* call) const;
  /// Throws InvalidArgument inside of forward and backward.
  void require_outside(const char* call) const;
  /// Throws InvalidArgument if a unit is still in use at the end of this phase.
  void require_unused(const char* call) const;

  void begin_forward(bool records);
  void end_forward(bool threw);
  void begin_backward();
  void end_backward();
  void fail_backward() noexcept;
  /// After a backward or a failure: another forward must precede the next backward.
  void leave_pass() noexcept;
  void end_use(std::size_t unit, bool backward, bool threw) noexcept;
  [[nodiscard]] std::string parameter_name(std::size_t unit, std::size_t i) const;

  ShardedModelOptions options;
  std::string prefix;  // of the names of operations
  internal::UnitBytes bytes{};
  std::vector<std::unique_ptr<internal::HostUnit>> units{};
  std::vector<internal::ParameterHash> hashes{};
  std::vector<Shard> shards{};
  internal::UnitSchedule schedule;

  Phase phase = Phase::outside;
  bool records = false;          // this forward
  bool has_forward = false;      // a forward that records has ended since the last backward
  int wholes = 0;                // guards of `gather`
  std::vector<int> uses{};       // by unit: that have begun and not ended
  internal::FirstError error{};  // of uses that have ended
  std::vector<std::optional<std::size_t>> stamps{};  // by unit, of its first forward in this pass
};

}  // namespace kolo
