// Kolo for LibTorch: collectives on its tensors, and its optimizers over many ranks.
//
// Operations here are not recorded by autograd. Tensors are dense and on the CPU; those whose
// elements do not lie in row-major order are copied on their way.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/ordered_dict.h>

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kolo/kolo.hpp"

namespace kolo {

/// Parameters and the names that all ranks know them by, such as "0.weight".
using NamedParameters = std::vector<std::pair<std::string, ::torch::Tensor>>;

/// What a module's `named_parameters()` and `named_buffers()` give.
using ModuleTensors = ::torch::OrderedDict<std::string, ::torch::Tensor>;

/// As `allreduce` of a TensorView; in place, as LibTorch's underscore says.
void allreduce_(::torch::Tensor& tensor, const AllreduceOptions& options = {});

/// The same out of place: the result is a new, contiguous tensor, detached from the graph.
[[nodiscard]] ::torch::Tensor allreduce(const ::torch::Tensor& tensor,
                                        const AllreduceOptions& options = {});

/// Every rank's tensor becomes a copy of `root`'s. Shape and dtype must be alike.
void broadcast_(::torch::Tensor& tensor, int root, const BroadcastOptions& options = {});

/// Every rank's parameters and buffers become copies of `root`'s. Collective. Throws Mismatch on
/// every rank if names, shapes or dtypes differ between them; then nothing was changed.
void broadcast_parameters(::torch::nn::Module& module, int root);
void broadcast_parameters(const ModuleTensors& tensors, int root);

/// Every rank's optimizer goes on as `root`'s would: its state (momentum and the like) and the
/// options of each parameter group (learning rate and the like). Collective. Throws Mismatch on
/// every rank if the optimizers' classes, groups or parameters differ; then nothing was changed.
void broadcast_optimizer_state(::torch::optim::Optimizer& optimizer, int root);

/// Sets the learning rate of every parameter group, on this rank.
void set_learning_rate(::torch::optim::Optimizer& optimizer, double learning_rate);

/// The device that this rank should use: its GPU by local rank where LibTorch has CUDA and a GPU,
/// else the CPU.
[[nodiscard]] ::torch::Device local_device();

namespace detail {

/// Reduces the gradients of one optimizer. Each parameter has a hook that submits its gradient when
/// backward has accumulated it. Hooks run on the thread of backward; everything else on the thread
/// that owns the optimizer, while no backward runs.
class GradientReducer {
 public:
  using Groups = std::vector<::torch::optim::OptimizerParamGroup>;

  /// Collective. Without names, parameters are known by their position.
  GradientReducer(const Groups& groups, const std::optional<NamedParameters>& names,
                  const DistributedOptimizerOptions& options);
  GradientReducer(GradientReducer&&) noexcept;
  GradientReducer& operator=(GradientReducer&&) noexcept;
  ~GradientReducer();

  /// Submits what backward did not and waits for everything. Does nothing the second time in a
  /// step.
  void synchronize(const Groups& groups);

  /// The gradients of this step were used: backward may run again.
  void end_step();

  /// As `synchronize` and `end_step` if any gradient was submitted in this step, else nothing.
  void discard(const Groups& groups);

  /// The loss, reduced as the gradients are.
  [[nodiscard]] ::torch::Tensor reduce_loss(const ::torch::Tensor& loss);

 private:
  struct State;
  std::shared_ptr<State> state_;  // hooks hold weak pointers to it
};

}  // namespace detail

/// An optimizer of LibTorch whose gradients are averaged (or summed) over the ranks before each
/// step. It is a `Base`: everything that `Base` has is there.
///
///     kolo::DistributedOptimizer optimizer(torch::optim::SGD(model->parameters(), 0.01),
///                                          model->named_parameters());
///
/// The reduction of each gradient starts when backward has accumulated it, and overlaps the rest of
/// backward. Between two steps there is one backward pass; the second gives InvalidArgument. A
/// parameter that took no part in backward has a gradient of zeros after `synchronize`. Parameters
/// that require no gradient are left out; those frozen, unfrozen, converted or added to a group
/// later are noticed at the next `synchronize` or `step`, and ranks must do so alike.
///
/// Construction is collective: all ranks make their optimizers in the same order, and every rank
/// gets Mismatch if names, shapes or dtypes of the parameters differ between them. It throws
/// InvalidArgument if a parameter of the optimizer has no name or a name occurs twice. Beside those
/// of `allreduce`, errors in a gradient are thrown by backward(), `synchronize` and `step`: sparse
/// gradients are InvalidArgument. Movable, not copyable; not thread-safe.
template <typename Base>
  requires std::derived_from<Base, ::torch::optim::Optimizer>
class DistributedOptimizer<Base> : public Base {
 public:
  using typename Base::LossClosure;

  /// Names the parameters by their position in the optimizer.
  explicit DistributedOptimizer(Base optimizer, const DistributedOptimizerOptions& options = {})
      : Base(std::move(optimizer)), reducer_(this->param_groups(), std::nullopt, options) {}

  /// `names` holds at least the optimizer's parameters.
  DistributedOptimizer(Base optimizer, const NamedParameters& names,
                       const DistributedOptimizerOptions& options = {})
      : Base(std::move(optimizer)), reducer_(this->param_groups(), names, options) {}

  /// With what `named_parameters()` of a module gives.
  template <std::same_as<ModuleTensors> Names>
  DistributedOptimizer(Base optimizer, const Names& names,
                       const DistributedOptimizerOptions& options = {})
      : DistributedOptimizer(std::move(optimizer), names.pairs(), options) {}

  DistributedOptimizer(DistributedOptimizer&&) = default;

  /// Waits until this step's gradients are reduced, say to clip them. `step` then does not wait
  /// again.
  void synchronize() { reducer_.synchronize(this->param_groups()); }

  /// Synchronizes, unless that was done, and steps. With a closure, the gradients of each of its
  /// evaluations are reduced and so is the loss it returns, so that line searches agree on all
  /// ranks.
  ::torch::Tensor step(LossClosure closure = nullptr) override {
    if (closure == nullptr) {
      synchronize();
      ::torch::Tensor nothing = Base::step(nullptr);
      reducer_.end_step();
      return nothing;
    }
    reducer_.discard(this->param_groups());
    return Base::step([this, &closure] {
      const ::torch::Tensor loss = closure();
      synchronize();
      reducer_.end_step();
      return reducer_.reduce_loss(loss);
    });
  }

  /// As `Base`'s, after finishing the reductions under way: the step that they belong to is given
  /// up.
  template <typename... Arguments>
    requires requires(Base& base, Arguments... arguments) { base.zero_grad(arguments...); }
  void zero_grad(Arguments... arguments) {
    reducer_.discard(this->param_groups());
    Base::zero_grad(arguments...);
  }

 private:
  detail::GradientReducer reducer_;
};

template <typename Base>
DistributedOptimizer(Base, const DistributedOptimizerOptions& = {}) -> DistributedOptimizer<Base>;

template <typename Base>
DistributedOptimizer(Base, const NamedParameters&, const DistributedOptimizerOptions& = {})
    -> DistributedOptimizer<Base>;

template <typename Base, std::same_as<ModuleTensors> Names>
DistributedOptimizer(Base, const Names&, const DistributedOptimizerOptions& = {})
    -> DistributedOptimizer<Base>;

}  // namespace kolo
