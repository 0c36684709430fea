// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "kolo/torch/fully_sharded.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include "base/format.hpp"
#include "kolo/error.hpp"
#include "kolo/torch/state.hpp"
#include "torch/checkpointed_calls.hpp"
#include "torch/sharded/fully_sharded_state.hpp"
#include "torch/sharded/model_units.hpp"
#include "torch/sharded/unit_use.hpp"
#include "training/agreement.hpp"
#include "training/optimizer/optimizer_setup.hpp"

namespace kolo {

using namespace internal;

namespace {

void require_valid(const FullyShardedOptions& options) {
  if (options.op != ReduceOp::average && options.op != ReduceOp::sum)
    throw InvalidArgument("FullySharded: op must be average or sum");
  if (options.units_ahead < 0)
    throw InvalidArgument("FullySharded: units_ahead is " + std::to_string(options.units_ahead) +
                          ", but must not be negative");
  constexpr std::array computing{at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
  if (options.compute && std::ranges::find(computing, *options.compute) == computing.end())
    throw InvalidArgument("FullySharded: compute must be f64, f32, bf16 or f16");
}

// Gradients that were computed in a half type lose nothing in it on the wire. The sums are made in
// the dtype of the shards.
Compression wire_of(const FullyShardedOptions& options) {
  if (options.compression != Compression::none || !options.compute) return options.compression;
  if (*options.compute == at::kBFloat16) return Compression::bf16;
  return *options.compute == at::kHalf ? Compression::fp16 : Compression::none;
}

UnitScheduleOptions schedule_options(const FullyShardedOptions& options) {
  return {.op = options.op,
          .compression = wire_of(options),
          .reshard_after_forward = options.reshard_after_forward,
          .units_ahead = options.units_ahead,
          .sets = {.shards = options.process_set, .replicas = options.replicas}};
}

// The unit of the module: made by ConstructSharded, or new.
std::shared_ptr<ShardedUnit> unit_for(detail::ShardedModule& module, ShardPosition position) {
  std::shared_ptr<ShardedUnit> unit = ShardedUnit::of(module);
  if (!unit) {
    unit = std::make_shared<ShardedUnit>(std::vector<ShardedUnit::Parameter>{}, position);
    ShardedUnit::set(module, unit);
  }
  if (unit->listener()) throw InvalidArgument("FullySharded: another one has this model");
  if (unit->position() != position)
    throw InvalidArgument(
        "FullySharded: the model was constructed for other ranks. Give ConstructSharded the same "
        "process set");
  return unit;
}

std::size_t find_in(const ShardedUnit& unit, const ::torch::Tensor& tensor) {
  std::size_t i = 0;
  while (i < unit.size() && !unit.whole(i).is_same(tensor)) ++i;
  return i;
}

}  // namespace

FullySharded::State::State(::torch::nn::Module& module, const FullyShardedOptions& given,
                           std::string name)
    : model(module),
      options(given),
      prefix(std::move(name)),
      schedule(prefix, schedule_options(given)) {}

// Puts each parameter into its unit, and the units into the state.
void FullySharded::State::divide() {
  const ShardPosition position = ShardPosition::in(options.process_set);
  const ModelUnits found = units_of(model);
  for (const ModelUnit& unit : found.units) {
    units.push_back(unit_for(*unit.module, position));
    unit_names.push_back(unit.name.empty() ? "(model)" : unit.name);
  }
  std::vector<std::size_t> listed(found.units.size());
  for (const ModelParameter& parameter : found.parameters) {
    ShardedUnit& unit = *units[parameter.unit];
    const std::size_t index = find_in(unit, parameter.tensor);
    if (index == unit.size()) {
      unit.add({parameter.names.front(), parameter.tensor});
    } else {
      unit.rename(index, parameter.names.front());
    }
    ++listed[parameter.unit];
    places.push_back({parameter.names, parameter.unit, index});
  }
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (listed[i] != units[i]->size())
      throw InvalidArgument("FullySharded: a parameter of '" + unit_names[i] +
                            "' was replaced, or shared with another unit, after it was divided. "
                            "Share parameters without ConstructSharded");
    require_short(unit_names[i], "FullySharded");
    units[i]->connect(self, i, options.compute, /*may_share=*/!options.replicas);
    schedule.add(unit_names[i],
                 {.contains_units = found.units[i].contains_units,
                  .has_frozen = units[i]->has_frozen(),
                  .trained = units[i]->trained()},
                 *units[i]);
  }
}

std::vector<Item> FullySharded::State::items() const {
  std::vector<Item> items{
      {"options", std::string(to_string(options.op)) + ", compression " +
                      std::string(to_string(wire_of(options))) + ", units_ahead " +
                      std::to_string(options.units_ahead) +
                      (options.reshard_after_forward ? "" : ", without reshard_after_forward") +
                      (options.compute ? std::string(", compute ") + c10::toString(*options.compute)
                                       : std::string())}};
  for (const Place& place : places)
    items.push_back({place.names.front(), units[place.unit]->describe(place.index) + " in unit '" +
                                              unit_names[place.unit] + "'"});
  return items;
}

void FullySharded::State::make_group() {
  auto made = std::make_shared<ShardGroup>(
      ShardGroup{.set = options.process_set,
                 .operation = prefix,
                 .position = ShardPosition::in(options.process_set),
                 .saves = !options.replicas || options.replicas->rank() == 0});
  for (const Place& place : places)
    made->shards.push_back(units[place.unit]->description(place.index));
  group = std::move(made);
  add_shard_group(group);
}

// Collective in the replicas. They must have the same shards of the same model, and start equal.
void FullySharded::State::match_replicas() {
  const ProcessSet& set = *options.replicas;
  std::vector<Item> same = items();
  same.push_back({"shards", std::to_string(group->position.index + 1) + " of " +
                                std::to_string(group->position.ranks)});
  require_agreement(prefix + "replicas", "FullySharded: the models of replicas", same, set);
  NamedParameters shards;
  for (const Place& place : places) shards.emplace_back(place.names.front(), shard(place).detach());
  broadcast_parameters(shards, set.ranks().front(), set);
}

// ---- Forward and backward

namespace {

constexpr std::size_t not_reached = std::numeric_limits<std::size_t>::max();

}  // namespace

void FullySharded::State::begin_pass() {
  if (schedule.in_pass()) return;
  BackwardCall::current().add(self);
  schedule.set_reducing(*guards == 0);
  schedule.begin_pass();
}

// Forward within backward computes activations again. LibTorch's threads submit for the thread that
// has called backward().
void FullySharded::State::enter(ShardedUnit& unit, bool recording) {
  const std::lock_guard lock(mutex);
  const bool is_again = BackwardCall::is_running();
  const detail::SubmitsFor thread(is_again && !BackwardCall::current().is_callers_thread());
  if (is_again) begin_pass();
  schedule.enter(unit.index(), recording, current_checkpointed_call());
  if (unit.index() == UnitSchedule::root && !is_again) schedule.set_reducing(*guards == 0);
}

void FullySharded::State::leave(ShardedUnit& unit, bool threw) {
  const std::lock_guard lock(mutex);
  schedule.leave(unit.index(), threw);
}

void FullySharded::State::note_recorded(ShardedUnit& unit, bool computes_again) {
  const std::lock_guard lock(mutex);
  schedule.note_recorded(unit.index(), computes_again);
}

// A call of torch::autograd::grad() is no pass: it makes no gradients of parameters.
void FullySharded::State::enter_backward(ShardedUnit& unit, std::size_t stamp, bool is_first) {
  const std::lock_guard lock(mutex);
  if (!BackwardCall::is_running()) {
    schedule.require_unchanged(unit.index(), stamp);
    return schedule.gather(unit.index());
  }
  const detail::SubmitsFor thread(!BackwardCall::current().is_callers_thread());
  begin_pass();
  schedule.enter_backward(unit.index(), stamp, is_first);
}

void FullySharded::State::gradients_complete(ShardedUnit& unit,
                                             std::vector<::torch::Tensor> gradients) {
  const std::lock_guard lock(mutex);
  const detail::SubmitsFor thread(!BackwardCall::current().is_callers_thread());
  begin_pass();
  unit.add_gradients(std::move(gradients));
  schedule.gradients_complete(unit.index());
}

void FullySharded::State::end_pass() {
  const std::lock_guard lock(mutex);
  schedule.end_pass();
}

void FullySharded::State::fail_pass() noexcept {
  const std::lock_guard lock(mutex);
  schedule.fail_pass();
}

void FullySharded::State::fail_unbegun_pass(const GraphNodes& reached) noexcept {
  const std::lock_guard lock(mutex);
  if (place_in(reached) == not_reached) return;
  schedule.set_reducing(*guards == 0);
  schedule.fail_pass();
}

std::size_t FullySharded::State::place_in(const GraphNodes& reached) const {
  std::size_t first = not_reached;
  for (const auto& unit : units)
    if (const auto found = reached.find(unit->node()); found != reached.end())
      first = std::min(first, found->second);
  return first;
}

void FullySharded::State::end_failed_pass() noexcept {
  const std::lock_guard lock(mutex);
  schedule.end_failed_pass();
}

namespace {

// Collective. Begins the names of operations, which are the same for all copies.
std::string agree_on_prefix(const FullyShardedOptions& options) {
  std::int64_t number = agree_on_optimizer_number(options.process_set);
  if (options.replicas) number = agree_on_optimizer_number(*options.replicas);
  return "fully_sharded." + std::to_string(number) + ".";
}

}  // namespace

FullySharded::FullySharded(::torch::nn::Module& model, const FullyShardedOptions& options) {
  require_valid(options);
  const ProcessSet& set = options.process_set;
  (void)ShardPosition::of_member(set, "FullySharded");
  const std::string prefix = agree_on_prefix(options);
  state_ = std::make_shared<State>(model, options, prefix);
  state_->self = state_;
  share_failure(
      prefix + "construction", "FullySharded: ", [&] { state_->divide(); }, set);
  require_agreement(prefix + "agreement", "FullySharded: the model or the options", state_->items(),
                    set);
  state_->make_group();
  if (options.replicas) state_->match_replicas();
  BackwardCall::watch(state_);
}

// Makes the same collectives as the constructor, which a process calls that has just started.
void FullySharded::rejoin() {
  const ProcessSet& set = state_->options.process_set;
  require_world_to_rejoin(set, "FullySharded");
  if (state_->options.replicas) require_world_to_rejoin(*state_->options.replicas, "FullySharded");
  state_->prefix = agree_on_prefix(state_->options);
  const std::string& prefix = state_->prefix;
  state_->schedule.begin_session(prefix);
  const ShardPosition position = ShardPosition::of_member(set, "FullySharded");
  const auto divide = [&] {
    if (position == state_->group->position) return;
    for (const auto& unit : state_->units) unit->divide_anew(position);
  };
  share_failure(prefix + "construction", "FullySharded: ", divide, set);
  require_agreement(prefix + "agreement", "FullySharded: the model or the options", state_->items(),
                    set);
  state_->make_group();
}

FullySharded::~FullySharded() {
  for (const auto& unit : state_->units) unit->disconnect();
}

std::vector<::torch::Tensor> FullySharded::parameters() const {
  std::vector<::torch::Tensor> shards;
  for (const State::Place& place : state_->places) shards.push_back(state_->shard(place));
  return shards;
}

NamedParameters FullySharded::named_parameters() const {
  NamedParameters shards;
  for (const State::Place& place : state_->places)
    shards.emplace_back(place.names.front(), state_->shard(place));
  return shards;
}

NoSync FullySharded::no_sync() const { return NoSync(state_->guards); }

void FullySharded::zero_grad() {
  const std::lock_guard lock(state_->mutex);
  for (const auto& unit : state_->units) unit->zero_gradients();
}

void FullySharded::take_part() {
  const std::lock_guard lock(state_->mutex);
  state_->schedule.take_part(*state_->guards == 0);
}

void FullySharded::take_part_in_backward() {
  const std::lock_guard lock(state_->mutex);
  state_->schedule.take_part_in_backward(*state_->guards == 0);
}

FullySharded::Counters FullySharded::counters() const {
  const UnitSchedule::Counters& counters = state_->schedule.counters();
  return {counters.gathers, counters.late_gathers, counters.reductions};
}

struct FullySharded::Whole::State {
  std::shared_ptr<FullySharded::State> state;
  std::int64_t session;
};

FullySharded::Whole::Whole(std::unique_ptr<State> state) : state_(std::move(state)) {}
FullySharded::Whole::~Whole() {
  const std::lock_guard lock(state_->state->mutex);
  state_->state->schedule.release_all(state_->session);
}

FullySharded::Whole FullySharded::gather() const {
  const std::lock_guard lock(state_->mutex);
  const std::int64_t session = state_->schedule.gather_all();
  return Whole(std::make_unique<Whole::State>(Whole::State{state_, session}));
}

}  // namespace kolo
