// SPDX-License-Identifier: Apache-2.0
// A backward pass: its hooks, its end, and the pass that a step makes without backward.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <algorithm>

#include "base/finally.hpp"
#include "kolo/torch/gradients.hpp"
#include "torch/optimizer/gradient_reducer_state.hpp"
#include "torch/optimizer/optimizer_gradients.hpp"

namespace kolo::detail {

using namespace internal;

// A parameter may be unfrozen or converted between two passes, even if all parameters were frozen
// before. It then needs new hooks before its gradient accumulates.
void GradientReducer::State::before_backward() {
  const std::lock_guard lock(hooks);
  if (reducer.active()) return;  // another thread is in a backward of this optimizer
  if (module) follow_module();
  for (std::size_t slot = 0; slot < storage.parameters().size(); ++slot)
    if (storage.parameters()[slot].hook.is_missing(storage.parameters()[slot].tensor)) attach(slot);
}

PassReducer* GradientReducer::State::check_pass() {
  const std::lock_guard lock(hooks);
  if (!reducer.reducing()) return nullptr;
  storage.require_unmixed();
  storage.require_disjoint();
  reducer.submit_held();
  return &reducer;
}

void GradientReducer::State::end_pass() {
  const std::lock_guard lock(hooks);
  if (!reducer.reducing()) return reducer.end_pass();
  // If the steps are not watched, passes are counted from the last reduction.
  if (!watches_steps) reducer.forget_passes();
  reducer.rethrow();
}

void GradientReducer::State::fail_pass() noexcept {
  const std::lock_guard lock(hooks);
  reducer.fail_pass();
  // If the steps are not watched, ranks forget their passes in `end_pass`, which this rank does not
  // call.
  if (!watches_steps && reducer.reducing()) reducer.forget_passes();
}

// A pass that does not reduce is none of the other ranks' concern, and has accumulated nothing.
void GradientReducer::State::fail_unbegun_pass(const GraphNodes& reached) noexcept {
  {
    const std::lock_guard lock(hooks);
    // Another thread may be in a backward of this optimizer.
    if (!is_member || reducer.active()) return;
    take_over();
    if (std::ranges::none_of(storage.parameters(), [&](const Parameter& parameter) {
          return !parameter.elsewhere && reached.contains(parameter.hook.accumulator());
        }))
      return;
    reducer.drop_before_join();
    if (!next_pass_reduces()) return;
    set_scales(0);
    reducer.begin(/*reducing=*/true);
  }
  fail_pass();
}

// The prescale of an operation divides by the passes of a complete step. If a step had fewer,
// gradients are multiplied by a factor first, so that the result is the mean of the passes made.
void GradientReducer::State::set_scales(int passes_made) {
  double factor = 1.0;
  const int all = options.backward_passes_per_step;
  if (options.accumulation == Accumulation::mean) {
    const int made = passes_made == 0 ? all : std::min(passes_made, all);
    factor = is_member ? static_cast<double>(all) / made : 1.0 / made;
  }
  reducer.set_scales(factor, prescale(options));
}

// Takes over the parameters that another optimizer reduced, if that optimizer is gone.
void GradientReducer::State::take_over() {
  for (Parameter& parameter : storage.parameters())
    if (parameter.elsewhere) parameter.elsewhere = owner_of(parameter) != nullptr;
}

void GradientReducer::State::begin_pass() {
  take_over();
  BackwardCall::current().add(weak_from_this());
  reducer.drop_before_join();
  set_scales(0);
  reducer.begin(next_pass_reduces());
}

bool GradientReducer::State::before_accumulation(std::size_t slot) {
  // Backward runs one thread for CPU parameters and one per GPU, so hooks run concurrently.
  // Their order may differ between ranks; operations are matched by name.
  const std::lock_guard lock(hooks);
  if (const Parameter& parameter = storage.parameters()[slot];
      parameter.elsewhere && owner_of(parameter))
    return false;
  const SubmitsFor thread(!BackwardCall::current().is_callers_thread());
  if (!reducer.active()) begin_pass();
  prepare(slot);
  return !storage.parameters()[slot].tensor.grad().defined();
}

void GradientReducer::State::after_accumulation(std::size_t slot) {
  const std::lock_guard lock(hooks);
  Parameter& parameter = storage.parameters()[slot];
  if (parameter.elsewhere || !reducer.active() || !parameter.tensor.grad().defined()) return;
  storage.require_reducible(slot, is_grouped(parameter));
  if (reducer.reducing()) {
    const SubmitsFor thread(!BackwardCall::current().is_callers_thread());
    reducer.ready(slot);
  } else {
    parameter.waiting = true;
    storage.accumulated_locally(slot);
  }
}

void GradientReducer::State::prepare(std::size_t slot) {
  if (reducer.reducing()) {
    storage.make_room(slot);
  } else {
    storage.accumulate_locally(slot);
  }
}

void GradientReducer::State::reduce_all(bool skips) {
  // All gradients are checked before any is submitted, so that the call can be repeated after an
  // exception.
  const auto& parameters = storage.parameters();
  if (!skips) storage.require_unmixed();
  storage.forget_changed();
  for (std::size_t slot = 0; slot < parameters.size(); ++slot)
    if (storage.takes_part(slot)) storage.require_reducible(slot, is_grouped(parameters[slot]));
  storage.require_disjoint();
  set_scales(reducer.passes());
  reducer.begin(/*reducing=*/true, /*counts=*/false);
  try {
    for (std::size_t slot = 0; slot < parameters.size(); ++slot) {
      const bool is_new = !parameters[slot].retired || storage.is_waiting(slot);
      if (storage.takes_part(slot) && storage.content(slot) > 0 && is_new) reducer.ready(slot);
    }
    reducer.submit_held();
  } catch (...) {
    reducer.fail_pass();
    throw;
  }
  reducer.end_pass();
}

void GradientReducer::State::synchronize(bool skips) {
  reducer.settle();
  reduce_elsewhere();
  const bool is_final = watches_steps ? reducer.is_final() : reducer.local_passes() == 0;
  if (is_final || reducer.slots() == 0) return;
  if (reducer.drop_before_join() != PassReducer::Cut::nothing && !skips) {
    throw InvalidArgument(
        std::string(storage.subject()) +
        ": join() was called after backward passes that reduce nothing, before "
        "their step. Their gradients are dropped on this rank: call zero_grad(). Call join() after "
        "step()");
  }
  reduce_all(skips);
  if (!watches_steps) reducer.forget_passes();
}

void GradientReducer::State::reduce_added(std::size_t first) {
  bool any = false;
  for (std::size_t slot = first; slot < storage.parameters().size(); ++slot) {
    if (!storage.takes_part(slot)) continue;
    storage.require_reducible(slot, is_grouped(storage.parameters()[slot]));
    storage.accumulated_unnoticed(slot);
    any = true;
  }
  if (!any) return;
  storage.require_disjoint();
  set_scales(reducer.passes());
  reducer.begin(/*reducing=*/true, /*counts=*/false);
  reducer.end_pass();
  if (!watches_steps) reducer.forget_passes();
}

// Another optimizer may reduce a parameter that this one shares, and this one may step first. The
// other must then reduce before the step, even on a rank without a pass, because the other ranks
// wait for it.
void GradientReducer::State::reduce_elsewhere() {
  if (is_reducing_elsewhere) return;  // two optimizers may each reduce a parameter of the other
  is_reducing_elsewhere = true;
  const Finally end([this] { is_reducing_elsewhere = false; });
  for (const Parameter& parameter : storage.parameters()) {
    if (!parameter.elsewhere) continue;
    const std::shared_ptr<State> owner = owner_of(parameter);
    if (!owner) continue;
    // Counts from before a join say nothing: the ranks made unequal numbers of reductions.
    const bool is_reduced =
        !owner->watches_steps || (!owner->reducer.step().is_before_join() &&
                                  owner->reducer.reductions() != parameter.reductions_elsewhere);
    if (owner->reducer.local_passes() > 0 || !is_reduced) owner->synchronize();
  }
}

void GradientReducer::State::forget_reductions_elsewhere() {
  for (Parameter& parameter : storage.parameters()) {
    if (!parameter.elsewhere) continue;
    if (const std::shared_ptr<State> owner = owner_of(parameter))
      parameter.reductions_elsewhere = owner->reducer.reductions();
  }
}

void GradientReducer::State::forget_passes() {
  reducer.settle();
  reducer.forget_passes();
  storage.forget();
}

::torch::Tensor GradientReducer::clip(const ParameterGroups& groups, double max_norm,
                                      const ClipOptions& options) {
  require_clip(max_norm, options.norm_type);
  synchronize(groups);
  const at::NoGradGuard no_grad;
  const std::vector<::torch::Tensor> gradients = gradient_elements(groups);
  const ::torch::Tensor norm =
      agree_on_norm(norm_of(gradients, options.norm_type, device_of(groups)), "kolo.clip_grad_norm",
                    process_set());
  scale_to(max_norm, norm, options.refuse_nonfinite, gradients);
  return norm;
}

}  // namespace kolo::detail
