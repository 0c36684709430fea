// SPDX-License-Identifier: Apache-2.0
#include "kolo/torch/checkpointed.hpp"

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/finally.hpp"
#include "kolo/error.hpp"
#include "kolo/torch/checkpoint.hpp"
#include "torch/autocast_state.hpp"
#include "torch/checkpointed_calls.hpp"

namespace kolo {

using namespace internal;
namespace {

using ::torch::Tensor;
using ::torch::autograd::AutogradContext;
using ::torch::autograd::variable_list;
using Function = std::function<variable_list(const variable_list&)>;

/// Sets this thread's autocast state for a device type, and restores the earlier state when it is
/// destroyed.
class AutocastScope {
 public:
  AutocastScope(c10::DeviceType type, const AutocastState& state)
      : type_(type), before_(autocast_state(type)) {
    set_autocast_state(type_, state);
    at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    set_autocast_state(type_, before_);
  }
  AutocastScope& operator=(AutocastScope&&) = delete;

 private:
  c10::DeviceType type_;
  AutocastState before_;
};

/// Turns off this thread's cache of parameters in lower precision. Its entries do not depend on
/// whether gradients are enabled: an entry of the first call, which has none, would cut a later use
/// of the parameter off from its gradient.
class UncachedAutocast {
 public:
  UncachedAutocast() { at::autocast::set_autocast_cache_enabled(false); }
  ~UncachedAutocast() { at::autocast::set_autocast_cache_enabled(before_); }
  UncachedAutocast& operator=(UncachedAutocast&&) = delete;

 private:
  bool before_ = at::autocast::is_autocast_cache_enabled();
};

/// A call, and what it needs to compute the same a second time.
struct Call : ::torch::CustomClassHolder {
  explicit Call(Function called) : function(std::move(called)) {}

  /// Calls the function as if this were the first call. Gradients are enabled.
  [[nodiscard]] variable_list repeat(const variable_list& inputs) const {
    const StateDict random_now = random_state();
    const Finally restore([&] { load_random_state(random_now); });
    load_random_state(random);
    const at::AutoGradMode on(true);
    const UncachedAutocast uncached;
    const AutocastScope on_cpu(c10::DeviceType::CPU, cpu);
    const AutocastScope on_gpu(c10::DeviceType::CUDA, gpu);
    return function(inputs);
  }

  Function function;
  std::vector<bool> is_defined{};  // by result of the first call
  StateDict random = random_state();
  AutocastState cpu = autocast_state(c10::DeviceType::CPU);
  AutocastState gpu = autocast_state(c10::DeviceType::CUDA);
};

// Refuses backward with `create_graph`, and backward for some inputs only: the repeated call
// accumulates the gradients of all parameters that its function uses.
void require_whole_backward() {
  if (at::GradMode::is_enabled())
    throw InvalidArgument(
        "checkpointed: its gradients cannot be differentiated: call backward() without "
        "create_graph");
  if (!::torch::autograd::Engine::get_default_engine().is_checkpoint_valid())
    throw InvalidArgument(
        "checkpointed: torch::autograd::grad() and backward() with inputs would accumulate the "
        "gradients of other parameters, too: call backward() without inputs");
}

std::vector<std::int64_t> versions_of(at::TensorList tensors) {
  std::vector<std::int64_t> versions;
  for (const Tensor& tensor : tensors)
    versions.push_back(tensor.defined() && !tensor.is_inference() ? tensor._version() : 0);
  return versions;
}

void require_unchanged(at::TensorList inputs, const std::vector<std::int64_t>& versions) {
  const std::vector<std::int64_t> now = versions_of(inputs);
  for (std::size_t i = 0; i < now.size(); ++i)
    if (now[i] != versions[i])
      throw InvalidArgument(
          "checkpointed: the function changes input " + std::to_string(i) +
          " in place, so that the second call, in backward, would not compute the same: let it "
          "change a clone()");
}

struct Checkpointed : ::torch::autograd::Function<Checkpointed> {
  // `anchor` requires a gradient, so that autograd records the call even if no input does.
  static variable_list forward(AutogradContext* context, const Tensor& /*anchor*/,
                               at::TensorList inputs, const c10::intrusive_ptr<Call>& call) {
    context->save_for_backward(inputs.vec());
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    const UncachedAutocast uncached;
    const std::vector<std::int64_t> versions = versions_of(inputs);
    variable_list results = call->function(inputs.vec());
    require_unchanged(inputs, versions);
    // LibTorch takes no undefined results, which layers have, such as attention without weights.
    for (const Tensor& result : results) call->is_defined.push_back(result.defined());
    std::erase_if(results, [](const Tensor& result) { return !result.defined(); });
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    require_whole_backward();
    variable_list inputs;
    for (const Tensor& saved : context->get_saved_variables())
      inputs.push_back(saved.defined() ? saved.detach().set_requires_grad(saved.requires_grad())
                                       : saved);
    const auto capsule = context->saved_data["call"].toCapsule();
    variable_list results = static_cast<const Call&>(*capsule).repeat(inputs);
    std::erase_if(results, [](const Tensor& result) { return !result.defined(); });
    variable_list roots;
    variable_list of_roots;
    for (std::size_t i = 0; i < results.size() && i < gradients.size(); ++i) {
      if (!results[i].defined() || !results[i].requires_grad() || !gradients[i].defined()) continue;
      roots.push_back(results[i]);
      of_roots.push_back(gradients[i]);
    }
    if (!roots.empty()) ::torch::autograd::backward(roots, of_roots);
    variable_list all(1);
    for (const Tensor& input : inputs) all.push_back(input.defined() ? input.grad() : input);
    all.emplace_back();
    return all;
  }
};

thread_local std::uint64_t calls = 0;
thread_local std::uint64_t current_call = 0;

}  // namespace

std::uint64_t internal::checkpointed_calls() noexcept { return calls; }
std::uint64_t internal::current_checkpointed_call() noexcept { return current_call; }

std::vector<Tensor> checkpointed(const Function& function, const std::vector<Tensor>& inputs) {
  if (!at::GradMode::is_enabled()) return function(inputs);
  ++calls;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].defined())
      throw InvalidArgument("checkpointed: input " + std::to_string(i) + " is undefined");
  const Tensor anchor = at::zeros({}).set_requires_grad(true);
  const auto call = c10::make_intrusive<Call>(function);
  const Finally restore([outer = std::exchange(current_call, calls)] { current_call = outer; });
  const variable_list defined = Checkpointed::apply(anchor, at::TensorList(inputs), call);
  variable_list results(call->is_defined.size());
  for (std::size_t i = 0, next = 0; i < results.size(); ++i)
    if (call->is_defined[i]) results[i] = defined[next++];
  return results;
}

Tensor checkpointed(const std::function<Tensor(const Tensor&)>& function, const Tensor& input) {
  const Function of_list = [function](const variable_list& inputs) {
    return variable_list{function(inputs.front())};
  };
  return checkpointed(of_list, variable_list{input}).front();
}

}  // namespace kolo
