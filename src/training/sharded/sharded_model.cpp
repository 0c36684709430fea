// SPDX-License-Identifier: Apache-2.0
#include "kolo/training/sharded_model.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <limits>
#include <set>
#include <utility>

#include "base/elements.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"
#include "training/agreement.hpp"
#include "training/optimizer/gradient_norm.hpp"
#include "training/optimizer/optimizer_setup.hpp"
#include "training/require.hpp"
#include "training/sharded/sharded_model_state.hpp"

namespace kolo {

using internal::HostUnit;
using internal::require;

namespace {

// Leaves room for sums of sizes and alignments.
constexpr std::int64_t most_bytes = std::numeric_limits<std::int64_t>::max() / 4;

// `bytes`: of the units so far.
void require_valid(const ShardedModel::Unit& unit, std::int64_t& bytes) {
  require(!unit.name.empty(), "ShardedModel: a unit has no name");
  std::set<std::string> names;
  for (const ShardedModel::Parameter& parameter : unit.parameters) {
    const auto& [name, elements, dtype] = parameter;
    require(!name.empty(), "ShardedModel: a parameter of '{}' has no name", unit.name);
    require(names.insert(name).second, "ShardedModel: unit '{}' has two parameters '{}'", unit.name,
            name);
    require(elements > 0, "ShardedModel: '{}' of unit '{}' has {} elements; there must be one",
            name, unit.name, elements);
    bool is_real = false;
    std::int64_t size = 1;
    internal::visit_real(dtype, [&](auto element) {
      is_real = true;
      size = sizeof(element);
    });
    require(is_real, "ShardedModel: '{}' of unit '{}' is {}, but must be f32, f64, f16 or bf16",
            name, unit.name, internal::to_string(dtype));
    require(elements <= (most_bytes - bytes) / size,
            "ShardedModel: '{}' of unit '{}' has {} elements, too many for any memory", name,
            unit.name, elements);
    bytes += elements * size;
    internal::require_short(unit.name + "." + name, "ShardedModel");
  }
}

void require_valid(const std::vector<ShardedModel::Unit>& units,
                   const ShardedModelOptions& options) {
  require(options.op == ReduceOp::average || options.op == ReduceOp::sum,
          "ShardedModel: op must be average or sum");
  require(options.units_ahead >= 0, "ShardedModel: units_ahead is {}, but must not be negative",
          options.units_ahead);
  require(options.process_set.rank() >= 0,
          "ShardedModel: this rank is not a member of the process set");
  require(!units.empty(), "ShardedModel: there are no units; the first is the root");
  std::set<std::string> names;
  std::int64_t bytes = 0;
  for (const ShardedModel::Unit& unit : units) {
    require_valid(unit, bytes);
    require(names.insert(unit.name).second, "ShardedModel: there are two units '{}'", unit.name);
  }
}

// The element of a list of tensors with this index and dtype.
template <typename View>
const View& checked(std::span<const View> views, std::size_t i, DType dtype, const HostUnit& unit,
                    const char* kind) {
  require(i < views.size(), "ShardedModel: unit '{}' has no {} {} here; there are {}", unit.name(),
          kind, i, views.size());
  require(views[i].dtype() == dtype, "ShardedModel: the {} '{}' of unit '{}' is {}, not {}", kind,
          unit.parameter_name(i), unit.name(), internal::to_string(views[i].dtype()),
          internal::to_string(dtype));
  return views[i];
}

}  // namespace

// ---- Views

const ConstTensorView& ShardedModel::View::parameter_of(std::size_t i, DType type) const {
  return checked(parameters(), i, type, *state_->units[unit_], "parameter");
}

const TensorView& ShardedModel::View::gradient_of(std::size_t i, DType type) const {
  return checked(gradients(), i, type, *state_->units[unit_], "gradient");
}

ShardedModel::Use::Use(State& state, std::size_t unit, bool backward)
    : View(state, unit), backward_(backward), exceptions_(std::uncaught_exceptions()) {
  const auto phase = backward ? State::Phase::backward : State::Phase::forward;
  HostUnit& memory = state.require_unit(unit, phase, "use");
  if (backward) {
    state.schedule.enter_backward(unit, state.stamps[unit].value_or(memory.stamp()),
                                  /*is_first=*/true);
    gradients_ = memory.whole_gradients();
  } else {
    if (state.records && !state.stamps[unit]) state.stamps[unit] = memory.stamp();
    state.schedule.enter(unit, state.records);
  }
  parameters_ = memory.whole();
  ++state.uses[unit];
}

ShardedModel::Use::~Use() {
  state_->end_use(unit_, backward_, std::uncaught_exceptions() > exceptions_);
}

ShardedModel::Forward::Forward(State& state, bool records) : View(state, State::root) {
  state.begin_forward(records);
  parameters_ = state.units[State::root]->whole();
}

ShardedModel::Forward::~Forward() {
  if (has_ended_) return;
  internal::FirstError ignored;
  ignored.attempt([this] { state_->end_forward(/*threw=*/true); });
}

ShardedModel::Use ShardedModel::Forward::use(std::size_t unit) const {
  return {*state_, unit, /*backward=*/false};
}

void ShardedModel::Forward::end() {
  require(!has_ended_, "ShardedModel: the forward has ended already");
  state_->require_unused("end");
  has_ended_ = true;
  state_->end_forward(/*threw=*/false);
}

ShardedModel::Backward::Backward(State& state) : View(state, State::root) {
  state.begin_backward();
  parameters_ = state.units[State::root]->whole();
  gradients_ = state.units[State::root]->whole_gradients();
}

ShardedModel::Backward::~Backward() {
  if (!has_ended_) state_->fail_backward();
}

ShardedModel::Use ShardedModel::Backward::use(std::size_t unit) const {
  return {*state_, unit, /*backward=*/true};
}

void ShardedModel::Backward::end() {
  require(!has_ended_, "ShardedModel: the backward has ended already");
  state_->require_unused("end");
  has_ended_ = true;
  state_->end_backward();
}

ShardedModel::Whole::Whole(State& state) : state_(&state) {
  session_ = state.schedule.gather_all();
  ++state.wholes;
}

ShardedModel::Whole::~Whole() {
  --state_->wholes;
  state_->schedule.release_all(session_);
}

std::vector<ConstTensorView> ShardedModel::Whole::parameters(std::size_t unit) const {
  require(unit < state_->units.size(), "ShardedModel: there is no unit {}; there are {}", unit,
          state_->units.size());
  return state_->units[unit]->whole();
}

// ---- ShardedModel

ShardedModel::ShardedModel(const std::vector<Unit>& units, const Fill& fill,
                           const ShardedModelOptions& options) {
  require_valid(units, options);
  const ProcessSet& set = options.process_set;
  const std::string prefix =
      fmt::format("sharded_model.{}.", internal::agree_on_optimizer_number(set));
  state_ = std::make_unique<State>(options, prefix);
  internal::share_failure(
      prefix + "construction", "ShardedModel: ", [&] { state_->divide(units, fill); }, set);
  internal::require_agreement(prefix + "agreement", "ShardedModel: the units or the options",
                              state_->items(), set);
  state_->compare_values();
}

ShardedModel::~ShardedModel() = default;

ShardedModel::Forward ShardedModel::begin_forward() { return {*state_, /*records=*/true}; }
ShardedModel::Forward ShardedModel::begin_evaluation() { return {*state_, /*records=*/false}; }

ShardedModel::Backward ShardedModel::begin_backward(const Pass& pass) {
  state_->schedule.set_reducing(pass.reduce);
  return Backward(*state_);
}
ShardedModel::Backward ShardedModel::begin_backward() { return begin_backward(Pass{}); }

void ShardedModel::take_part(const Pass& pass) {
  state_->require_outside("take_part");
  const bool has_forward = state_->has_forward;
  state_->leave_pass();
  if (has_forward) return state_->schedule.take_part_in_backward(pass.reduce);
  state_->schedule.take_part(pass.reduce);
}
void ShardedModel::take_part() { take_part(Pass{}); }

std::vector<NamedTensor> ShardedModel::parameters() const {
  std::vector<NamedTensor> named;
  for (std::size_t unit = 0; unit < state_->units.size(); ++unit)
    for (std::size_t i = 0; i < state_->units[unit]->size(); ++i)
      named.push_back(
          {state_->parameter_name(unit, i), state_->units[unit]->parameter_shards()[i]});
  return named;
}

std::vector<NamedTensor> ShardedModel::gradients() const {
  std::vector<NamedTensor> named;
  for (std::size_t unit = 0; unit < state_->units.size(); ++unit)
    for (std::size_t i = 0; i < state_->units[unit]->size(); ++i)
      named.push_back({state_->parameter_name(unit, i), state_->units[unit]->gradient_shards()[i]});
  return named;
}

std::span<const Shard> ShardedModel::shards() const { return state_->shards; }

void ShardedModel::zero_gradients() {
  state_->require_outside("zero_gradients");
  for (const auto& unit : state_->units) unit->zero_gradients();
}

double ShardedModel::clip_grad_norm(double max_norm) {
  internal::require_positive("max_norm", max_norm);
  state_->require_outside("clip_grad_norm");
  const std::vector<NamedTensor> own = gradients();
  const double norm = internal::join_norms(internal::norm_of(own, "clip_grad_norm"), /*type=*/2.0,
                                           state_->prefix + "norm", state_->options.process_set);
  if (const auto factor = internal::clip_factor(max_norm, norm)) internal::multiply(own, *factor);
  return norm;
}

ShardedModel::Whole ShardedModel::gather() {
  state_->require_outside("gather");
  return Whole(*state_);
}

ShardedModel::Counters ShardedModel::counters() const {
  const internal::UnitSchedule::Counters& counters = state_->schedule.counters();
  return {.gathers = counters.gathers,
          .late_gathers = counters.late_gathers,
          .reductions = counters.reductions,
          .most_parameter_bytes = state_->bytes.parameters.most,
          .most_gradient_bytes = state_->bytes.gradients.most};
}

}  // namespace kolo
