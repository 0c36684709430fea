// SPDX-License-Identifier: Apache-2.0
// The gradients of one optimizer: the state shared by autograd hooks and the optimizer.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kolo/torch/optimizer.hpp"
#include "torch/parameter_names.hpp"
#include "torch/sparse_gradient.hpp"
#include "training/optimizer_setup.hpp"
#include "training/step_number.hpp"

namespace kolo::internal {

/// The autograd hook of one parameter.
class GradientHook {
 public:
  /// Makes `action` run once in each backward pass that involves the parameter, on backward's
  /// thread, after the gradient is accumulated. Call it again whenever the hook may be lost:
  /// converting a parameter (`to(dtype)`) gives it a new accumulator, and a frozen parameter has
  /// none. No effect while the hook is in place.
  void attach(const ::torch::Tensor& parameter, std::function<void()> action);

 private:
  // std::shared_ptr in LibTorch 1.13 and 2.11, c10::intrusive_ptr in 2.15.
  using NodePointer =
      decltype(::torch::autograd::impl::grad_accumulator(std::declval<const ::torch::Tensor&>()));

  NodePointer accumulator_{};  // owns the hook; the parameter holds it only weakly
};

struct Parameter {
  std::string name;
  ::torch::Tensor tensor;
  std::optional<std::size_t> group{};
  GradientHook hook{};
  int passes = 0;                // backward passes of this step that involved the parameter
  bool ready = false;            // the gradient waits for the rest of its group
  bool submitted = false;        // in this step
  std::int64_t sparse_dims = 0;  // of the last gradient; 0 if it was dense
  ::torch::Tensor gradient{};    // the gradient under reduction, kept alive meanwhile
  ::torch::Tensor buffer{};      // its elements as they are reduced: the gradient or a copy
};

struct GradientGroup {
  std::string name;
  std::vector<std::size_t> indices;  // of parameters
};

/// A submitted operation, and the parameters whose gradients it reduces.
struct PendingReduction {
  std::vector<std::size_t> indices;
  std::unique_ptr<SparseReduction> sparse{};
  double sparse_scale = 1.0;
  Future<void> future{};  // for dense gradients
};

}  // namespace kolo::internal

namespace kolo::detail {

struct GradientReducer::State : std::enable_shared_from_this<State> {
  DistributedOptimizerOptions options;
  bool is_member = false;  // of the process set
  internal::ParameterNames names;
  std::int64_t number = 0;  // of the optimizer
  internal::StepNumber step;
  bool synchronized = false;  // in this step
  std::deque<internal::Parameter> parameters;
  std::unordered_set<const c10::TensorImpl*> known;  // tied weights are listed more than once
  internal::GroupNumbers group_numbers;
  std::vector<internal::GradientGroup> groups;
  // Declared after the parameters, whose memory the operations write to: destroyed before them.
  std::vector<internal::PendingReduction> pending;
  // Held by hooks, which may run on several threads. The optimizer's own thread needs no lock,
  // because it never runs during backward.
  std::mutex hooks;

  /// Adopts parameters that the optimizer got since the last call, and restores lost hooks.
  void adopt(const Groups& optimizer_groups);
  void make_groups();
  void require_agreement() const;

  /// Called by a parameter's hook. Throws InvalidArgument after too many passes.
  void on_gradient(std::size_t index);
  void submit_missing();
  /// Waits for all operations even after one has failed, because they still write to the gradients.
  /// After a failure the step is over on all ranks.
  void wait();
  /// On a rank outside the process set: divides for Accumulation::mean without reducing.
  void accumulate_alone();
  void end_step();
  void forget_passes();

 private:
  void count_pass(internal::Parameter& parameter) const;
  [[nodiscard]] int passes_made() const;
  [[nodiscard]] double mean_correction() const;
  void join_group(std::size_t index, std::size_t number_of_group);
  [[nodiscard]] std::string operation_name(const std::string& name) const;
  [[nodiscard]] bool travels_sparse(const internal::Parameter& parameter) const;
  void require_reducible(const internal::Parameter& parameter) const;
  [[nodiscard]] bool is_ready(const internal::GradientGroup& group) const;
  void prepare(internal::Parameter& parameter, double correction) const;
  void submit(std::size_t index, double correction);
  void submit_sparse(std::size_t index, double correction);
  void submit_group(const internal::GradientGroup& group, double correction);
  void finish(internal::PendingReduction& reduction);
};

}  // namespace kolo::detail
