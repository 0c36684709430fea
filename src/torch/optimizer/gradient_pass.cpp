// SPDX-License-Identifier: Apache-2.0
// A backward pass: its hooks, its end, and the pass that a step makes without backward.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <torch/csrc/autograd/engine.h>
#include <torch/version.h>

#include <chrono>

#include "base/finally.hpp"
#include "torch/optimizer/gradient_state.hpp"

namespace kolo::detail {

using namespace internal;
namespace {

// An optimizer waits this long for its summary, then the other optimizers that end a pass have
// their turn.
constexpr std::chrono::milliseconds turn{2};

}  // namespace

/// The end of a pass, owned by callbacks that are queued in autograd's engine. The engine drops the
/// callbacks if backward throws, so a destruction before `set_done` means that the pass failed.
class GradientReducer::State::PassEnd {
 public:
  explicit PassEnd(std::weak_ptr<State> state) : state_(std::move(state)) {}
  PassEnd(const PassEnd&) = delete;
  PassEnd& operator=(const PassEnd&) = delete;
  ~PassEnd() {
    const auto state = state_.lock();
    if (!done_ && state) state->fail_pass();
  }

  [[nodiscard]] std::shared_ptr<State> state() const { return state_.lock(); }
  void set_done() { done_ = true; }

 private:
  std::weak_ptr<State> state_;
  bool done_ = false;
};

// Each phase is a callback of its own. Callbacks run in the order in which they were queued, so
// each phase runs for all optimizers of this backward before the next phase.
void GradientReducer::State::queue_phase(const std::shared_ptr<PassEnd>& end, int phase) {
  ::torch::autograd::Engine::get_default_engine().queue_callback([end, phase] {
    if (const auto state = end->state()) state->run_phase(end, phase);
  });
}

void GradientReducer::State::run_phase(const std::shared_ptr<PassEnd>& end, int phase) {
  const std::lock_guard lock(hooks);
  if (phase == 0) attach_missing();
  if (!reducer.reducing()) {
    end->set_done();
    reducer.end_pass();
    return;
  }
  switch (phase) {
    case 0:
      // All gradients of the pass exist now. If a check throws, the pass fails on all ranks.
      storage.require_unmixed();
      storage.require_disjoint();
      reducer.submit_summary();
      break;
    case 1:
      // The summary of another optimizer of this backward may come first: a rank that steps without
      // backward ends the passes of its optimizers one after the other, in the program's order.
      if (!reducer.summary_arrives_within(turn)) return queue_phase(end, 1);
      reducer.submit_missing();
      break;
    default:
      if (reducer.active()) {
        reducer.proceed(phase);
        break;
      }
      end->set_done();
      // Without steps to count from, the passes count from the last reduction.
      if (!watches_steps) reducer.forget_passes();
      reducer.rethrow();
      return;
  }
  queue_phase(end, phase + 1);
}

void GradientReducer::State::fail_pass() noexcept {
  const std::lock_guard lock(hooks);
  reducer.fail_pass();
  // The ranks whose pass has ended have forgotten their passes, too.
  if (!watches_steps && reducer.reducing()) reducer.forget_passes();
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

// Attaches hooks to parameters that had none in this pass, because they were unfrozen or converted.
// The gradients that they have accumulated are noted here, since no hook has told of them.
void GradientReducer::State::attach_missing() {
  for (std::size_t slot = 0; slot < storage.parameters().size(); ++slot) {
    const Parameter& parameter = storage.parameters()[slot];
    if (!parameter.hook.is_missing(parameter.tensor)) continue;
    attach(slot);
    if (parameter.elsewhere) continue;
    storage.require_reducible(slot, is_grouped(parameter));
    storage.accumulated_unnoticed(slot);
  }
}

// Takes over the parameters that another optimizer reduced, if that optimizer is gone.
void GradientReducer::State::take_over() {
  for (Parameter& parameter : storage.parameters())
    if (parameter.elsewhere) parameter.elsewhere = owner_of(parameter) != nullptr;
}

void GradientReducer::State::begin_pass() {
  take_over();
  queue_phase(std::make_shared<PassEnd>(weak_from_this()), 0);
  reducer.drop_before_join();
  set_scales(0);
  reducer.begin(*guards == 0 && reducer.in_last_pass());
}

bool GradientReducer::State::before_accumulation(std::size_t slot) {
  // Backward runs one thread for CPU parameters and one per GPU, so hooks run concurrently. Their
  // order may differ between ranks; operations are matched by name.
  const std::lock_guard lock(hooks);
  if (const Parameter& parameter = storage.parameters()[slot];
      parameter.elsewhere && owner_of(parameter))
    return false;
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
    reducer.ready(slot);
  } else {
    parameter.waiting = true;
    storage.accumulated_locally(slot);
  }
}

// LibTorch 2 calls this also in torch::autograd::grad(), which must reduce nothing, so no pass
// begins here. But it calls early enough that accumulator hooks attached here still run. LibTorch
// 1.13 calls too late for that, so the pass begins here, and its end attaches the hooks and takes
// the gradient along.
void GradientReducer::State::before_unnoticed(std::size_t slot) {
  const std::lock_guard lock(hooks);
  Parameter& parameter = storage.parameters()[slot];
  if (!parameter.hook.is_missing(parameter.tensor)) return;
#if TORCH_VERSION_MAJOR >= 2
  parameter.hook.attach(parameter.tensor, weak_from_this(), slot);
#else
  if (parameter.elsewhere && owner_of(parameter)) return;
  if (!reducer.active()) begin_pass();
  prepare(slot);
#endif
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
  reducer.begin(/*reducing=*/true);
  try {
    for (std::size_t slot = 0; slot < parameters.size(); ++slot)
      if (storage.takes_part(slot) && storage.content(slot) > 0) reducer.ready(slot);
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
  reducer.begin(/*reducing=*/true);
  reducer.end_pass();
  if (!watches_steps) reducer.forget_passes();
}

// This optimizer may step before the optimizer that reduces a parameter that both share. So that
// optimizer must reduce first, also on a rank without a pass, because the other ranks wait for it.
void GradientReducer::State::reduce_elsewhere() {
  if (is_reducing_elsewhere) return;  // two optimizers may each reduce a parameter of the other
  is_reducing_elsewhere = true;
  const Finally end([this] { is_reducing_elsewhere = false; });
  for (const Parameter& parameter : storage.parameters()) {
    if (!parameter.elsewhere) continue;
    const std::shared_ptr<State> owner = owner_of(parameter);
    if (!owner) continue;
    // Counts from before a join do not tell: the ranks made unequal numbers of reductions.
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

}  // namespace kolo::detail
