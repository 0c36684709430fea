// SPDX-License-Identifier: Apache-2.0
// The gradients of one optimizer: the state shared by autograd's hooks and the optimizer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "kolo/torch/optimizer.hpp"
#include "torch/optimizer/backward_call.hpp"
#include "torch/optimizer/gradient_hook.hpp"
#include "torch/optimizer/parameter_names.hpp"
#include "torch/optimizer/torch_gradient_storage.hpp"
#include "training/optimizer/optimizer_setup.hpp"
#include "training/optimizer/pass_reducer.hpp"

namespace kolo::detail {

/// The functions of GradientListener are called on backward's threads, and those of BackwardPart on
/// the thread that calls `backward()`. Everything else is called by the thread that owns the
/// optimizer, while no backward runs.
struct GradientReducer::State : internal::GradientListener,
                                internal::BackwardPart,
                                std::enable_shared_from_this<State> {
  State(const DistributedOptimizerOptions& given,
        std::shared_ptr<internal::TorchGradientStorage> of)
      : options(given),
        owned(std::move(of)),
        storage(*owned),
        reducer(storage, given, /*agrees=*/true) {}

  DistributedOptimizerOptions options;
  bool is_member = false;  // this rank is in the process set
  bool watches_steps = true;
  internal::ParameterNames names;
  std::shared_ptr<internal::ModuleParameters> module{};  // null for an optimizer's parameters
  std::shared_ptr<internal::TorchGradientStorage> owned;
  internal::TorchGradientStorage& storage;
  internal::PassReducer reducer;
  std::unordered_map<const c10::TensorImpl*, std::size_t> slot_of;
  // Slots by group and position in the group, as of the last call of `adopt`. Tied weights are
  // listed twice.
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> slot_at;
  std::unordered_set<std::string> used_names;
  internal::GroupNumbers group_numbers;
  std::unordered_set<std::string> uncompared;  // names of parameters that may differ
  std::shared_ptr<std::atomic<int>> guards = std::make_shared<std::atomic<int>>(0);  // NoSync
  // Held by hooks, which may run on several threads, and by whoever adopts parameters. The
  // optimizer's own thread needs no lock for the rest, because it never runs during its backward.
  std::mutex hooks;
  bool is_reducing_elsewhere = false;

  /// Adopts parameters that the optimizer got since the last call, and restores lost hooks. Returns
  /// the first of the new slots. All ranks must add the same parameters.
  std::size_t adopt(const Groups& optimizer_groups);
  /// The same on the optimizer's own thread, where another thread may begin a backward pass of
  /// another model, before which all optimizers look for changes.
  std::size_t adopt_between_passes(const Groups& optimizer_groups);
  /// The current parameters of the optimizer, by the names of their operations.
  [[nodiscard]] NamedParameters named(const Groups& optimizer_groups) const;
  /// Looks at the module again, and adopts what has changed there.
  void follow_module();
  /// Makes a state for a new session. It knows nothing of earlier passes, nor of parameters that
  /// were replaced. Drops all gradients. `storage` may be null.
  [[nodiscard]] static std::shared_ptr<State> renewed(
      std::shared_ptr<State> old, const Groups& optimizer_groups,
      std::shared_ptr<internal::TorchGradientStorage> storage);
  /// Applies the options that name parameters.
  void find_named(const Groups& optimizer_groups);
  void agree();

  bool before_accumulation(std::size_t slot) override;
  void after_accumulation(std::size_t slot) override;
  [[nodiscard]] bool owns(std::size_t slot) const override {
    return !storage.parameters()[slot].elsewhere;
  }

  void before_backward() override;
  [[nodiscard]] internal::PassReducer* check_pass() override;
  void end_pass() override;
  void fail_pass() noexcept override;
  void fail_unbegun_pass(const internal::GraphNodes& reached) noexcept override;

  /// Reduces the gradients that passes of this step have left unreduced. Throws InvalidArgument if
  /// a join has cut the step, unless the caller drops the step anyway (`skips`).
  void synchronize(bool skips = false);
  /// Reduces the gradients that passes of this step have accumulated in the new slots, from `first`
  /// on. Call it after `synchronize`, whose reduction does not include new slots.
  void reduce_added(std::size_t first);
  void forget_passes();
  /// Treats every reduction that other optimizers have already made as part of an earlier step.
  void forget_reductions_elsewhere();

 private:
  // The next three functions add a slot, and return it.
  std::size_t add(const std::string& wanted, const ::torch::Tensor& tensor);
  std::size_t replace(std::size_t slot, const ::torch::Tensor& tensor);
  std::size_t list(const std::string& name, const ::torch::Tensor& tensor);
  [[nodiscard]] std::string unused_name(const std::string& wanted) const;
  [[nodiscard]] bool is_compared(const internal::Parameter& parameter) const;
  [[nodiscard]] std::size_t count_compared() const;
  [[nodiscard]] std::vector<internal::ParameterHash> hash_parameters() const;
  void begin_pass();
  [[nodiscard]] bool next_pass_reduces() const { return *guards == 0 && reducer.in_last_pass(); }
  void prepare(std::size_t slot);
  void set_scales(int passes_made);
  void reduce_all(bool skips);
  void reduce_elsewhere();
  [[nodiscard]] std::shared_ptr<State> owner_of(const internal::Parameter& parameter) const;
  void attach(std::size_t slot);
  void release_unused();
  void take_over();
  void require_same_options(const internal::Parameter& parameter, const State& other) const;
  [[nodiscard]] bool is_grouped(const internal::Parameter& parameter) const {
    return group_numbers.contains(parameter.name);
  }
};

}  // namespace kolo::detail
