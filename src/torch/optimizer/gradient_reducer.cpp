// SPDX-License-Identifier: Apache-2.0
// Tracks an optimizer's parameters and their hooks.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "torch/optimizer/gradient_reducer_state.hpp"
#include "torch/optimizer/shard_groups.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/torch/collectives.hpp"
#include "kolo/torch/gradients.hpp"
#include "torch/tensor_view.hpp"

namespace kolo::detail {

using namespace internal;
namespace {

std::unordered_set<const c10::TensorImpl*> tensors_of(const ParameterGroups& groups) {
  std::unordered_set<const c10::TensorImpl*> tensors;
  for_each_parameter(groups, [&](std::size_t, std::size_t, const ::torch::Tensor& tensor) {
    tensors.insert(tensor.unsafeGetTensorImpl());
  });
  return tensors;
}

}  // namespace

std::size_t GradientReducer::State::adopt(const Groups& optimizer_groups) {
  const std::size_t known_slots = storage.parameters().size();
  const std::unordered_set<const c10::TensorImpl*> current = tensors_of(optimizer_groups);
  for_each_parameter(
      optimizer_groups, [&](std::size_t i, std::size_t j, const ::torch::Tensor& tensor) {
        // A tied weight has one gradient, and so one hook and one reduction.
        const auto known = slot_of.find(tensor.unsafeGetTensorImpl());
        const auto holder = slot_at.find({i, j});
        const bool replaces =
            known == slot_of.end() && holder != slot_at.end() &&
            !current.contains(storage.parameters()[holder->second].tensor.unsafeGetTensorImpl());
        slot_at[{i, j}] = known != slot_of.end() ? known->second
                          : replaces             ? replace(holder->second, tensor)
                                                 : add(names.of(tensor, i, j), tensor);
      });
  for (std::size_t slot = 0; slot < storage.parameters().size(); ++slot) attach(slot);
  for (Parameter& parameter : storage.parameters())
    parameter.retired = !current.contains(parameter.tensor.unsafeGetTensorImpl());
  release_unused();
  if (storage.parameters().size() > known_slots) reducer.comparison().note_added();
  return known_slots;
}

// A retired parameter takes part in passes for as long as the program uses it. It is kept until the
// next reduction includes what passes without reduction have accumulated. One in a group is kept
// for good: other ranks may still use theirs, and all submit the group alike.
void GradientReducer::State::release_unused() {
  if (reducer.is_open()) return;
  for (std::size_t slot = 0; slot < storage.parameters().size(); ++slot) {
    const Parameter& parameter = storage.parameters()[slot];
    if (storage.is_waiting(slot) || is_grouped(parameter) || !storage.is_unused(parameter))
      continue;
    slot_of.erase(parameter.tensor.unsafeGetTensorImpl());
    storage.release(slot);
  }
}

std::size_t GradientReducer::State::adopt_between_passes(const Groups& optimizer_groups) {
  const std::lock_guard lock(hooks);
  return adopt(optimizer_groups);
}

std::size_t GradientReducer::State::add(const std::string& wanted, const ::torch::Tensor& tensor) {
  const std::string name = unused_name(wanted);
  const auto group = group_numbers.find(name);
  reducer.add(name, group == group_numbers.end() ? std::optional<std::size_t>()
                                                 : std::optional(group->second));
  return list(name, tensor);
}

// The new parameter gets the name of the old one, as in a program that is started again: a
// communication hook finds its state by the name. The old parameter may still be reduced, and gets
// another name, since operations are matched by name.
std::size_t GradientReducer::State::replace(std::size_t slot, const ::torch::Tensor& tensor) {
  Parameter& other = storage.parameters()[slot];
  const std::string name = std::exchange(other.name, unused_name(other.name));
  used_names.insert(other.name);
  reducer.replace(slot, other.name);
  return list(name, tensor);
}

std::size_t GradientReducer::State::list(const std::string& name, const ::torch::Tensor& tensor) {
  const std::size_t slot = storage.parameters().size();
  Parameter& parameter = storage.parameters().emplace_back();
  parameter.name = name;
  parameter.tensor = tensor;
  used_names.insert(name);
  slot_of.emplace(tensor.unsafeGetTensorImpl(), slot);
  return slot;
}

std::string GradientReducer::State::unused_name(const std::string& wanted) const {
  std::string name = wanted;
  for (int number = 2; used_names.contains(name); ++number)
    name = wanted + '(' + std::to_string(number) + ')';
  return name;
}

NamedParameters GradientReducer::State::named(const Groups& optimizer_groups) const {
  const std::unordered_set<const c10::TensorImpl*> current = tensors_of(optimizer_groups);
  NamedParameters list;
  for (const Parameter& parameter : storage.parameters())
    if (current.contains(parameter.tensor.unsafeGetTensorImpl()))
      list.emplace_back(parameter.name, parameter.tensor);
  return list;
}

std::shared_ptr<GradientReducer::State> GradientReducer::State::renewed(
    std::shared_ptr<State> old, const Groups& optimizer_groups,
    std::shared_ptr<TorchGradientStorage> storage) {
  old->reducer.rejoin();
  for (Parameter& parameter : old->storage.parameters()) parameter.tensor.mutable_grad().reset();
  const DistributedOptimizerOptions options = old->options;
  const bool is_member = old->is_member;
  const bool watches_steps = old->watches_steps;
  const char* const subject = old->storage.subject();
  const std::int64_t reductions = old->reducer.reductions();
  const auto module = old->module;
  ParameterNames names(module ? module->named() : old->named(optimizer_groups), subject);
  GroupNumbers group_numbers = std::move(old->group_numbers);
  auto uncompared = std::move(old->uncompared);
  auto guards = std::move(old->guards);
  old.reset();  // before a new state claims the communication hook and the parameters' hooks
  if (!storage) storage = std::make_shared<TorchGradientStorage>(options, subject);
  auto state = std::make_shared<State>(options, std::move(storage));
  state->is_member = is_member;
  state->watches_steps = watches_steps;
  state->module = module;
  state->names = std::move(names);
  state->group_numbers = std::move(group_numbers);
  state->uncompared = std::move(uncompared);
  state->guards = std::move(guards);
  state->reducer.set_reductions(reductions);
  return state;
}

void GradientReducer::State::follow_module() {
  release_unused();  // parameters that the last change has retired
  if (!module->update()) return;
  reducer.settle();  // a failed pass ends with the parameters that it began with
  names = ParameterNames(module->named(), storage.subject());
  adopt(module->groups());
}

// Hooks are attached also to a parameter that another optimizer reduces, because that optimizer may
// be destroyed first.
void GradientReducer::State::attach(std::size_t slot) {
  Parameter& parameter = storage.parameters()[slot];
  if (is_member && parameter.tensor.requires_grad())
    require_supported(parameter.tensor, parameter.name);
  const std::shared_ptr<State> other = owner_of(parameter);
  if (other) require_same_options(parameter, *other);
  if (other && !parameter.elsewhere) parameter.reductions_elsewhere = other->reducer.reductions();
  parameter.elsewhere = other != nullptr;
  parameter.hook.attach(parameter.tensor, weak_from_this(), slot);
}

// The optimizer that reduces a shared parameter; null if it is this one.
std::shared_ptr<GradientReducer::State> GradientReducer::State::owner_of(
    const Parameter& parameter) const {
  return std::dynamic_pointer_cast<State>(GradientHook::other_owner(parameter.tensor, *this));
}

void GradientReducer::State::require_same_options(const Parameter& parameter,
                                                  const State& other) const {
  const std::string mine = describe(options).description;
  const std::string others = describe(other.options).description;
  const bool same_ranks = options.process_set.ranks() == other.options.process_set.ranks();
  if (!storage.description().empty() || !other.storage.description().empty())
    throw InvalidArgument("'" + parameter.name +
                              "': a ShardedOptimizer cannot share a parameter with another "
                              "optimizer or with DistributedGradients",
                          parameter.name);
  if (mine == others && same_ranks) return;
  throw InvalidArgument(
      "'" + parameter.name +
          "': two optimizers share this parameter, so it is reduced once and they need the same "
          "options; this one has " +
          (same_ranks ? mine + ", and the other " + others : "another process set than the other"),
      parameter.name);
}

void GradientReducer::State::find_named(const Groups& optimizer_groups) {
  std::vector<std::string> all;
  std::vector<std::string> trained;
  std::unordered_set<const c10::TensorImpl*> seen;
  for_each_parameter(optimizer_groups,
                     [&](std::size_t i, std::size_t j, const ::torch::Tensor& tensor) {
                       if (!seen.insert(tensor.unsafeGetTensorImpl()).second) return;
                       all.push_back(names.of(tensor, i, j));
                       require_short(all.back(), storage.subject());
                       if (tensor.requires_grad()) trained.push_back(all.back());
                     });
  const auto resolve = [&](const std::string& name) -> std::optional<std::string> {
    if (const auto first = names.first_name(name)) return first;
    const bool is_known = std::find(all.begin(), all.end(), name) != all.end();
    return is_known ? std::optional(name) : std::nullopt;
  };
  for (const std::string& name : options.compare.except) {
    const auto known = resolve(name);
    if (!known)
      throw InvalidArgument(
          std::string(storage.subject()) + ": compare.except: there is no parameter '" + name + "'",
          name);
    uncompared.insert(*known);
  }
  group_numbers = options.num_groups > 0
                      ? consecutive_groups(trained, static_cast<std::size_t>(options.num_groups))
                      : listed_groups(options.groups, resolve, storage.subject());
}

bool GradientReducer::State::is_compared(const Parameter& parameter) const {
  return !parameter.retired && !uncompared.contains(parameter.name);
}

std::size_t GradientReducer::State::count_compared() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      storage.parameters(), [this](const Parameter& parameter) { return is_compared(parameter); }));
}

// To read GPU memory, a pass would have to wait for the GPU.
std::vector<ParameterHash> GradientReducer::State::hash_parameters() const {
  std::vector<ParameterHash> hashes;
  for (const Parameter& parameter : storage.parameters())
    if (is_compared(parameter))
      hashes.push_back(
          {parameter.name, is_readable(parameter.tensor) ? hash_of(parameter.tensor) : 0});
  return hashes;
}

void GradientReducer::State::agree() {
  reducer.comparison().set_parameters([this] { return count_compared(); },
                                      [this] { return hash_parameters(); });
  std::vector<Item> items;
  for (const Parameter& parameter : storage.parameters()) {
    std::string description = describe(parameter.tensor);
    if (!parameter.tensor.requires_grad()) description += ", frozen";
    if (parameter.elsewhere) description += ", reduced by another optimizer";
    items.push_back({parameter.name, description});
  }
  reducer.agree(storage.subject(), storage.description(), std::move(items));
}

GradientReducer::GradientReducer(const Groups& groups, const std::optional<NamedParameters>& names,
                                 const DistributedOptimizerOptions& options, bool watches_steps,
                                 std::shared_ptr<TorchGradientStorage> storage) {
  if (!storage)
    storage = std::make_shared<TorchGradientStorage>(
        options, watches_steps ? distributed_subject : "DistributedGradients");
  require_valid(options, storage->subject());
  refuse_shards(groups, storage->subject());
  state_ = std::make_shared<State>(options, std::move(storage));
  state_->watches_steps = watches_steps;
  state_->is_member = options.process_set.rank() >= 0;
  if (names) {
    state_->names = ParameterNames(*names, state_->storage.subject());
    state_->names.require_all(groups, state_->storage.subject());
  }
  // Hooks are attached first: a member that fails later throws from this constructor, and the weak
  // pointers in its hooks expire. The collectives come last, after all local checks.
  state_->find_named(groups);
  state_->adopt(groups);
  BackwardCall::watch(state_);
  if (!state_->is_member) return;
  state_->agree();
}

GradientReducer::GradientReducer(::torch::nn::Module& module,
                                 const DistributedOptimizerOptions& options)
    : GradientReducer(std::make_shared<ModuleParameters>(module), options) {}

GradientReducer::GradientReducer(std::function<NamedParameters()> module,
                                 const DistributedOptimizerOptions& options)
    : GradientReducer(std::make_shared<ModuleParameters>(std::move(module)), options) {}

GradientReducer::GradientReducer(const std::shared_ptr<ModuleParameters>& module,
                                 const DistributedOptimizerOptions& options)
    : GradientReducer(module->groups(), module->named(), options, /*watches_steps=*/false) {
  state_->module = module;
}

GradientReducer::GradientReducer(GradientReducer&&) noexcept = default;
GradientReducer& GradientReducer::operator=(GradientReducer&&) noexcept = default;
GradientReducer::~GradientReducer() = default;

void GradientReducer::synchronize(const Groups& groups) {
  // Parameters may have been added since the last step. Passes do not reduce them, so the reduction
  // on a rank without a pass must not either: all ranks reduce them afterwards.
  state_->synchronize();
  state_->reduce_added(state_->adopt_between_passes(groups));
}

void GradientReducer::synchronize() {
  state_->synchronize();
  const std::lock_guard lock(state_->hooks);
  state_->follow_module();
}

const ProcessSet& GradientReducer::process_set() const { return state_->options.process_set; }

NamedParameters GradientReducer::named(const Groups& groups) const { return state_->named(groups); }

std::int64_t GradientReducer::number() const { return state_->reducer.number(); }

void GradientReducer::end_step() {
  state_->reducer.end_step();
  state_->forget_reductions_elsewhere();
}

void GradientReducer::skip(const Groups& groups) {
  state_->synchronize(/*skips=*/true);
  state_->reduce_added(state_->adopt_between_passes(groups));
  state_->reducer.forget_passes();
  state_->forget_reductions_elsewhere();
}

void GradientReducer::discard(const Groups& groups) {
  state_->forget_passes();
  state_->adopt_between_passes(groups);
  state_->forget_reductions_elsewhere();
}

void GradientReducer::begin_evaluations(const Groups& groups) {
  state_->reducer.settle();
  state_->reducer.forget_passes();
  state_->adopt_between_passes(groups);
  state_->forget_reductions_elsewhere();
}

void GradientReducer::rejoin(const Groups& groups, std::shared_ptr<TorchGradientStorage> storage) {
  require_world_to_rejoin(state_->options.process_set, state_->storage.subject());
  state_ = State::renewed(std::move(state_), groups, std::move(storage));
  state_->adopt_between_passes(groups);
  state_->forget_reductions_elsewhere();
  BackwardCall::watch(state_);
  state_->agree();
}

void GradientReducer::rejoin() {
  state_->module->renew();
  rejoin(state_->module->groups());
}

NoSync GradientReducer::no_sync() const { return NoSync(state_->guards); }

::torch::Tensor GradientReducer::reduce_loss(const ::torch::Tensor& loss) {
  if (!loss.defined() || !state_->is_member) return loss;
  const bool is_sum = state_->options.op == ReduceOp::sum;
  return allreduce(loss.detach(), {.name = std::to_string(state_->reducer.number()) + "(loss)",
                                   .op = is_sum ? ReduceOp::sum : ReduceOp::average,
                                   .process_set = state_->options.process_set});
}

}  // namespace kolo::detail

namespace kolo {
namespace {

detail::GradientReducer::Groups group_of(const NamedParameters& parameters) {
  std::vector<::torch::Tensor> tensors;
  for (const auto& [name, tensor] : parameters) tensors.push_back(tensor);
  return {::torch::optim::OptimizerParamGroup(std::move(tensors))};
}

}  // namespace

DistributedGradients::DistributedGradients(::torch::nn::Module& module,
                                           const DistributedOptimizerOptions& options)
    : reducer_(module, options) {}

DistributedGradients::DistributedGradients(const NamedParameters& parameters,
                                           const DistributedOptimizerOptions& options)
    : groups_(group_of(parameters)),
      reducer_(groups_, parameters, options, /*watches_steps=*/false) {}

void DistributedGradients::synchronize() {
  if (groups_.empty()) return reducer_.synchronize();
  reducer_.synchronize(groups_);
}

void DistributedGradients::rejoin() {
  if (groups_.empty()) return reducer_.rejoin();
  reducer_.rejoin(groups_);
}

}  // namespace kolo
