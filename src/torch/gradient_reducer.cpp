// How the gradients of one optimizer are reduced while backward runs.
#include "kolo/torch.hpp"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "torch/agreement.hpp"
#include "torch/tensor_view.hpp"

namespace kolo::detail {
namespace {

// A std::shared_ptr in LibTorch 1.13 and 2.11, a c10::intrusive_ptr in 2.15.
using NodePointer =
    decltype(::torch::autograd::impl::grad_accumulator(std::declval<const ::torch::Tensor&>()));

// Two optimizers may have parameters of one name: operations carry the optimizer's number. Ranks
// make their optimizers in the same order.
std::int64_t next_optimizer_number() {
  static std::atomic<std::int64_t> next{0};
  return next++;
}

struct Parameter {
  std::string name;
  ::torch::Tensor tensor;
  NodePointer accumulator{};   // has our hook; the tensor itself holds it weakly
  bool submitted = false;      // in this step
  ::torch::Tensor gradient{};  // what is being reduced, kept alive while it is
  ::torch::Tensor image{};     // its elements as they travel: the gradient itself or a copy
  Future<void> future{};       // after `image`, so that it ends first
};

}  // namespace

struct GradientReducer::State : std::enable_shared_from_this<State> {
  std::int64_t number = 0;
  std::int64_t step = 0;
  bool synchronized = false;  // in this step
  DistributedOptimizerOptions options;
  NamedParameters names;  // keeps the tensors of `name_of` alive
  std::unordered_map<const c10::TensorImpl*, std::string> name_of;
  std::deque<Parameter> parameters;
  std::unordered_set<const c10::TensorImpl*> known;  // tied weights are listed more than once

  void set_names(const NamedParameters& given);
  void require_names(const Groups& groups) const;
  void adopt(const Groups& groups);
  void attach(std::size_t index);
  void require_agreement() const;

  void on_gradient(std::size_t index);
  void submit(Parameter& parameter);
  void submit_missing(const Groups& groups);
  void wait();
  void end_step();
};

namespace {

// Called by autograd after it has accumulated one parameter's gradient.
class Hook : public ::torch::autograd::FunctionPostHook {
 public:
  using Variables = ::torch::autograd::variable_list;

  explicit Hook(std::function<void()> action) : action_(std::move(action)) {}

  Variables operator()(const Variables& outputs, const Variables&) override {
    action_();
    return outputs;
  }

 private:
  std::function<void()> action_;
};

template <typename Visit>
void for_each_parameter(const GradientReducer::Groups& groups, const Visit& visit) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& tensors = groups[i].params();
    for (std::size_t j = 0; j < tensors.size(); ++j) {
      if (tensors[j].defined()) visit(i, j, tensors[j]);
    }
  }
}

std::string position(std::size_t group, std::size_t index) {
  return "group" + std::to_string(group) + "." + std::to_string(index);
}

}  // namespace

void GradientReducer::State::set_names(const NamedParameters& given) {
  std::unordered_set<std::string> seen;
  for (const auto& [name, tensor] : given) {
    if (!seen.insert(name).second) {
      throw InvalidArgument("DistributedOptimizer: two parameters are named '" + name + "'", name);
    }
    name_of.emplace(tensor.unsafeGetTensorImpl(), name);
  }
  names = given;
}

void GradientReducer::State::require_names(const Groups& groups) const {
  std::size_t nameless = 0;
  std::string first;
  for_each_parameter(groups, [&](std::size_t i, std::size_t j, const ::torch::Tensor& tensor) {
    if (name_of.contains(tensor.unsafeGetTensorImpl())) return;
    if (nameless++ == 0) {
      first = "parameter " + std::to_string(j) + " of group " + std::to_string(i) + " (" +
              describe(tensor) + ")";
    }
  });
  if (nameless != 0) {
    throw InvalidArgument(
        "DistributedOptimizer: " + std::to_string(nameless) +
        " of the optimizer's parameters are not among the named ones: the first is " + first);
  }
}

// Takes in what the groups have got since the last time, and hooks that were lost: converting a
// parameter (`to(dtype)`) gives it a new accumulator, and a frozen one has none.
void GradientReducer::State::adopt(const Groups& groups) {
  for_each_parameter(groups, [&](std::size_t i, std::size_t j, const ::torch::Tensor& tensor) {
    if (!known.insert(tensor.unsafeGetTensorImpl()).second) return;
    const auto name = name_of.find(tensor.unsafeGetTensorImpl());
    parameters.push_back({name != name_of.end() ? name->second : position(i, j), tensor});
  });
  for (std::size_t i = 0; i < parameters.size(); ++i) attach(i);
}

void GradientReducer::State::attach(std::size_t index) {
  Parameter& parameter = parameters[index];
  if (!parameter.tensor.requires_grad()) return;
  auto accumulator = ::torch::autograd::impl::grad_accumulator(parameter.tensor);
  if (accumulator == parameter.accumulator) return;
  accumulator->add_post_hook(std::make_unique<Hook>([weak = weak_from_this(), index] {
    if (const auto state = weak.lock()) state->on_gradient(index);
  }));
  parameter.accumulator = std::move(accumulator);
}

void GradientReducer::State::require_agreement() const {
  std::vector<Item> items;
  for (const Parameter& parameter : parameters) {
    const std::string frozen = parameter.tensor.requires_grad() ? "" : ", frozen";
    items.push_back({parameter.name, describe(parameter.tensor) + frozen});
  }
  detail::require_agreement("kolo.parameters." + std::to_string(number),
                            "The parameters of the DistributedOptimizer", items);
}

void GradientReducer::State::on_gradient(std::size_t index) {
  Parameter& parameter = parameters[index];
  if (parameter.submitted || synchronized) {
    throw InvalidArgument("'" + parameter.name +
                              "': more backward passes than one before step(). Call step(), or "
                              "zero_grad() of the DistributedOptimizer to give up the first",
                          parameter.name);
  }
  // A gradient that stayed undefined is made when the step is synchronized.
  if (parameter.tensor.grad().defined()) submit(parameter);
}

// The elements travel in the order in which the parameter's lie in memory, which is the same on all
// ranks. Autograd keeps gradients in that order, so that there is rarely anything to copy.
void GradientReducer::State::submit(Parameter& parameter) {
  const at::NoGradGuard no_grad;
  ::torch::Tensor& gradient = parameter.tensor.mutable_grad();
  if (!gradient.defined()) gradient = at::zeros_like(parameter.tensor);
  require_supported(gradient, parameter.name);
  parameter.gradient = gradient;
  parameter.image = gradient;
  if (!same_layout(gradient, parameter.tensor)) {
    parameter.image = at::empty_like(parameter.tensor);
    parameter.image.copy_(gradient);
  }
  const AllreduceOptions allreduce{.name = std::to_string(number) + "." + parameter.name,
                                   .op = options.op};
  parameter.future = Future<void>(submit_allreduce(view_of(parameter.image), allreduce, step));
  parameter.submitted = true;
}

void GradientReducer::State::submit_missing(const Groups& groups) {
  adopt(groups);
  const auto missing = [](const Parameter& parameter) {
    return !parameter.submitted && parameter.tensor.requires_grad();
  };
  // All are looked at before any is submitted: after a refusal the call may be repeated.
  for (const Parameter& parameter : parameters) {
    if (missing(parameter) && parameter.tensor.grad().defined()) {
      require_supported(parameter.tensor.grad(), parameter.name);
    }
  }
  for (Parameter& parameter : parameters) {
    if (missing(parameter)) submit(parameter);
  }
}

// Waits for all, also after one has failed; then the step is over, on all ranks alike.
void GradientReducer::State::wait() {
  const at::NoGradGuard no_grad;
  std::exception_ptr first_error;
  for (Parameter& parameter : parameters) {
    if (!parameter.future.valid()) continue;
    try {
      parameter.future.get();
      if (!parameter.image.is_same(parameter.gradient)) parameter.gradient.copy_(parameter.image);
    } catch (...) {
      if (!first_error) first_error = std::current_exception();
    }
    parameter.future = {};
    parameter.image.reset();
    parameter.gradient.reset();
  }
  if (first_error) {
    end_step();
    std::rethrow_exception(first_error);
  }
}

void GradientReducer::State::end_step() {
  for (Parameter& parameter : parameters) parameter.submitted = false;
  synchronized = false;
  ++step;
}

GradientReducer::GradientReducer(const Groups& groups, const std::optional<NamedParameters>& names,
                                 const DistributedOptimizerOptions& options)
    : state_(std::make_shared<State>()) {
  if (names) {
    state_->set_names(*names);
    state_->require_names(groups);
  }
  state_->options = options;
  state_->number = next_optimizer_number();
  state_->adopt(groups);
  state_->require_agreement();
}

GradientReducer::GradientReducer(GradientReducer&&) noexcept = default;
GradientReducer& GradientReducer::operator=(GradientReducer&&) noexcept = default;
GradientReducer::~GradientReducer() = default;

void GradientReducer::synchronize(const Groups& groups) {
  if (state_->synchronized) return;
  state_->submit_missing(groups);
  state_->wait();
  state_->synchronized = true;
}

void GradientReducer::end_step() { state_->end_step(); }

void GradientReducer::discard(const Groups& groups) {
  const bool begun = state_->synchronized ||
                     std::any_of(state_->parameters.begin(), state_->parameters.end(),
                                 [](const Parameter& parameter) { return parameter.submitted; });
  if (!begun) return;
  synchronize(groups);
  end_step();
}

::torch::Tensor GradientReducer::reduce_loss(const ::torch::Tensor& loss) {
  if (!loss.defined()) return loss;
  return allreduce(loss,
                   {.name = std::to_string(state_->number) + ".(loss)", .op = state_->options.op});
}

}  // namespace kolo::detail
