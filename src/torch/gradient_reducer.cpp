// How the gradients of one optimizer are reduced while backward runs.
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <algorithm>

#include "kolo/torch/collectives.hpp"
#include "torch/gradient_state.hpp"
#include "torch/tensor_view.hpp"
#include "training/optimizer_number.hpp"

namespace kolo::detail {

GradientReducer::GradientReducer(const Groups& groups, const std::optional<NamedParameters>& names,
                                 const DistributedOptimizerOptions& options)
    : state_(std::make_shared<State>()) {
  require_valid(options);
  state_->options = options;
  state_->is_member = options.process_set.rank() >= 0;
  if (names) {
    state_->names = ParameterNames(*names);
    state_->names.require_all(groups);
  }
  state_->adopt(groups);
  state_->make_groups();
  if (!state_->is_member) return;
  state_->number = agree_on_optimizer_number(options.process_set);
  state_->require_agreement();
}

GradientReducer::GradientReducer(GradientReducer&&) noexcept = default;
GradientReducer& GradientReducer::operator=(GradientReducer&&) noexcept = default;
GradientReducer::~GradientReducer() = default;

void GradientReducer::synchronize(const Groups& groups) {
  if (state_->synchronized) return;
  state_->adopt(groups);
  if (state_->is_member) {
    state_->submit_missing();
    state_->wait();
  } else {
    state_->accumulate_alone();
  }
  state_->synchronized = true;
}

const ProcessSet& GradientReducer::process_set() const { return state_->options.process_set; }

void GradientReducer::end_step() { state_->end_step(); }

void GradientReducer::discard(const Groups& groups) {
  const bool begun = state_->synchronized ||
                     std::any_of(state_->parameters.begin(), state_->parameters.end(),
                                 [](const Parameter& parameter) { return parameter.submitted; });
  if (begun) {
    synchronize(groups);
    end_step();
  } else {
    state_->adopt(groups);
    state_->forget_passes();
  }
}

::torch::Tensor GradientReducer::reduce_loss(const ::torch::Tensor& loss) {
  if (!loss.defined() || !state_->is_member) return loss;
  const bool is_sum = state_->options.op == ReduceOp::sum;
  return allreduce(loss.detach(), {.name = std::to_string(state_->number) + ".(loss)",
                                   .op = is_sum ? ReduceOp::sum : ReduceOp::average,
                                   .process_set = state_->options.process_set});
}

}  // namespace kolo::detail
