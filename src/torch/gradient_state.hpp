// The gradients of one optimizer: what hooks and the optimizer share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "kolo/torch/optimizer.hpp"
#include "torch/gradient_hook.hpp"
#include "torch/parameter_names.hpp"
#include "torch/sparse_gradient.hpp"
#include "training/gradient_groups.hpp"
#include "training/optimizer_options.hpp"

namespace kolo::detail {

struct Parameter {
  std::string name;
  ::torch::Tensor tensor;
  std::optional<std::size_t> group{};
  GradientHook hook{};
  int passes = 0;                // backward passes that it took part in, in this step
  bool ready = false;            // its gradient waits for the rest of its group
  bool submitted = false;        // in this step
  std::int64_t sparse_dims = 0;  // of its last gradient, 0 if that was dense
  ::torch::Tensor gradient{};    // what is being reduced, kept alive while it is
  ::torch::Tensor image{};       // its elements as they travel: the gradient itself or a copy
};

struct GradientGroup {
  std::string name;
  std::vector<std::size_t> members;  // places among the parameters
};

/// An operation under way.
struct Flight {
  std::vector<std::size_t> members;
  std::unique_ptr<SparseReduction> sparse{};
  double sparse_scale = 1.0;
  Future<void> future{};  // of dense gradients
};

struct GradientReducer::State : std::enable_shared_from_this<State> {
  DistributedOptimizerOptions options;
  bool is_member = false;  // of the process set
  ParameterNames names;
  std::int64_t number = 0;  // of the optimizer
  std::int64_t step = 0;
  bool synchronized = false;  // in this step
  std::deque<Parameter> parameters;
  std::unordered_set<const c10::TensorImpl*> known;  // tied weights are listed more than once
  GroupNumbers group_numbers;
  std::vector<GradientGroup> groups;
  std::vector<Flight> flights;  // after the parameters, so that they end first
  std::mutex hooks;             // only they run side by side

  /// Takes in what the optimizer has got since the last time, and hooks that were lost.
  void adopt(const Groups& optimizer_groups);
  void make_groups();
  void require_agreement() const;

  /// Called by a parameter's hook. Throws InvalidArgument for a pass too many.
  void on_gradient(std::size_t index);
  void submit_missing();
  /// Waits for all, also after one has failed; then the step is over, on all ranks alike.
  void wait();
  /// What is left to do on a rank that does not take part.
  void accumulate_alone();
  void end_step();
  void forget_passes();

 private:
  void count_pass(Parameter& parameter) const;
  [[nodiscard]] int passes_made() const;
  [[nodiscard]] double mean_correction() const;
  void join_group(std::size_t index, std::size_t number_of_group);
  [[nodiscard]] std::string operation_name(const std::string& name) const;
  [[nodiscard]] bool travels_sparse(const Parameter& parameter) const;
  void require_reducible(const Parameter& parameter) const;
  [[nodiscard]] bool is_ready(const GradientGroup& group) const;
  void prepare(Parameter& parameter, double correction) const;
  void submit(std::size_t index, double correction);
  void submit_sparse(std::size_t index, double correction);
  void submit_group(const GradientGroup& group, double correction);
  void finish(Flight& flight);
};

}  // namespace kolo::detail
