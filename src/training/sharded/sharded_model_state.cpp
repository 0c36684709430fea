// SPDX-License-Identifier: Apache-2.0
#include "training/sharded/sharded_model_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/format.hpp"
#include "kolo/collectives.hpp"
#include "kolo/error.hpp"

namespace kolo {

using internal::HostUnit;

namespace {

internal::UnitScheduleOptions schedule_options(const ShardedModelOptions& options) {
  return {.subject = "ShardedModel",
          .op = options.op,
          .compression = options.compression,
          .reshard_after_forward = options.reshard_after_forward,
          .units_ahead = options.units_ahead,
          .sets = {.shards = options.process_set},
          .order_is_known = true};
}

}  // namespace

ShardedModel::State::State(const ShardedModelOptions& given, std::string name)
    : options(given), prefix(std::move(name)), schedule(prefix, schedule_options(given)) {}

void ShardedModel::State::divide(const std::vector<Unit>& given, const Fill& fill) {
  const auto position = internal::ShardPosition::in(options.process_set);
  for (const Unit& description : given) {
    const std::size_t index = units.size();
    units.push_back(std::make_unique<HostUnit>(description, position, bytes));
    HostUnit& unit = *units.back();
    for (std::size_t i = 0; i < unit.size(); ++i) {
      shards.push_back(unit.shard(i));
      shards.back().parameter = shards.size() - 1;
    }
    schedule.add(description.name, {.trained = unit.size()}, unit);
    if (!fill) continue;
    const internal::TensorBlock whole = unit.make_whole();
    fill(index, whole.views());
    unit.take_shards(whole);
    std::vector<NamedTensor> named;
    for (std::size_t i = 0; i < unit.size(); ++i)
      named.push_back({parameter_name(index, i), whole.views()[i]});
    const auto found = internal::hashes_of(named);
    hashes.insert(hashes.end(), found.begin(), found.end());
  }
  uses.resize(units.size());
  stamps.resize(units.size());
}

std::vector<internal::Item> ShardedModel::State::items() const {
  std::vector<internal::Item> items{
      {"options",
       fmt::format("{}, compression {}, units_ahead {}{}", internal::to_string(options.op),
                   internal::to_string(options.compression), options.units_ahead,
                   options.reshard_after_forward ? "" : ", without reshard_after_forward")}};
  for (const auto& unit : units)
    for (std::size_t i = 0; i < unit->size(); ++i)
      items.push_back({unit->parameter_name(i), unit->describe(i)});
  return items;
}

void ShardedModel::State::compare_values() const {
  const ProcessSet& set = options.process_set;
  std::vector<std::int32_t> numbers = internal::encode(hashes, set);
  allreduce(numbers, {.name = prefix + "values", .op = ReduceOp::max, .process_set = set});
  internal::require_equal_hashes(hashes, numbers, set, "ShardedModel: the initial values",
                                 "Seed the generator equally on all ranks");
}

std::string ShardedModel::State::parameter_name(std::size_t unit, std::size_t i) const {
  return units[unit]->name() + "." + units[unit]->parameter_name(i);
}

// ---- Misuse

HostUnit& ShardedModel::State::require_unit(std::size_t unit, Phase in, const char* call) const {
  if (unit >= units.size())
    throw InvalidArgument(
        fmt::format("ShardedModel: there is no unit {}; there are {}", unit, units.size()));
  const std::string& name = units[unit]->name();
  if (unit == root)
    throw InvalidArgument(
        fmt::format("ShardedModel: '{}' is the root unit, which is in use from the beginning of "
                    "forward and backward: read it from their guards",
                    name),
        name);
  if (phase != in)
    throw InvalidArgument(
        fmt::format("ShardedModel: {}('{}') after the end of its guard", call, name), name);
  if (in == Phase::backward && uses[unit] > 0)
    throw InvalidArgument(
        fmt::format("ShardedModel: '{}' is in use already; end that use before the next", name),
        name);
  return *units[unit];
}

void ShardedModel::State::require_outside(const char* call) const {
  if (phase != Phase::outside)
    throw InvalidArgument(fmt::format("ShardedModel: {}() inside of {}", call,
                                      phase == Phase::forward ? "forward" : "backward"));
  if (wholes > 0)
    throw InvalidArgument(fmt::format("ShardedModel: {}() while a guard of gather() lives", call));
}

void ShardedModel::State::require_unused(const char* call) const {
  for (std::size_t i = 0; i < uses.size(); ++i)
    if (uses[i] > 0)
      throw InvalidArgument(
          fmt::format("ShardedModel: {}() while '{}' is in use", call, units[i]->name()),
          units[i]->name());
}

// ---- Forward

void ShardedModel::State::begin_forward(bool records_now) {
  require_outside(records_now ? "begin_forward" : "begin_evaluation");
  schedule.enter(root, records_now);
  phase = Phase::forward;
  records = records_now;
  if (records && !stamps[root]) stamps[root] = units[root]->stamp();
}

void ShardedModel::State::end_forward(bool threw) {
  phase = Phase::outside;
  if (threw) leave_pass();
  schedule.leave(root, threw);
  if (!threw && records) has_forward = true;
}

// ---- Backward

void ShardedModel::State::begin_backward() {
  require_outside("begin_backward");
  if (!has_forward)
    throw InvalidArgument(
        "ShardedModel: begin_backward() without a forward. Each backward follows a forward of "
        "begin_forward() that has ended");
  phase = Phase::backward;
  try {
    schedule.enter_backward(root, stamps[root].value_or(units[root]->stamp()), /*is_first=*/true);
    (void)units[root]->whole_gradients();  // allocates them
  } catch (...) {
    fail_backward();
    throw;
  }
}

void ShardedModel::State::end_backward() {
  if (!error) error.attempt([this] { schedule.gradients_complete(root); });
  if (error) {
    internal::FirstError first = std::exchange(error, {});
    fail_backward();
    first.rethrow();
  }
  leave_pass();
  schedule.end_pass();
}

void ShardedModel::State::fail_backward() noexcept {
  leave_pass();
  schedule.fail_pass();
  schedule.end_failed_pass();
}

void ShardedModel::State::leave_pass() noexcept {
  phase = Phase::outside;
  has_forward = false;
  error.clear();
  std::ranges::fill(stamps, std::nullopt);
}

void ShardedModel::State::end_use(std::size_t unit, bool backward, bool threw) noexcept {
  --uses[unit];
  if (!backward) {
    error.attempt([&] { schedule.leave(unit, threw); });
    return;
  }
  if (threw || phase != Phase::backward) return;
  error.attempt([&] { schedule.gradients_complete(unit); });
}

}  // namespace kolo
