// SPDX-License-Identifier: Apache-2.0
// Gradients of LibTorch modules: reduction without a wrapped optimizer, clipping, and shared
// memory.
#pragma once

// clang 14 can read LibTorch 1.13 in C++20 only if this comes first.
#include <ATen/core/ivalue.h>

#include <torch/optim/optimizer.h>

#include <concepts>
#include <cstddef>
#include <memory>

#include "kolo/export.hpp"
#include "kolo/torch/optimizer.hpp"

namespace kolo {

namespace internal {
class SharedBlocks;
}

/// Reduces the gradients of a module's parameters; its optimizers need no wrapper:
///
///     kolo::DistributedGradients gradients(*model);
///     torch::optim::SGD optimizer(model->parameters(), 0.01);
///
/// For tensors that no module lists, pass the tensors with their names. Any number of optimizers
/// may share the parameters of one DistributedGradients.
///
/// Gradients are final when `backward()` returns, as with DistributedOptimizer, whose rules for
/// backward passes and for construction apply. This class does not see steps: every
/// `backward_passes_per_step`-th pass reduces, and ranks must match in passes, not in steps.
/// Construct it after moving the module to its device and dtype. Parameters of the module may be
/// replaced, added, removed, frozen or unfrozen later, between two passes and on all ranks alike:
/// the next pass adapts. While another thread runs any backward, do not change the module, because
/// each call of `backward()` looks at its parameters. A module that no `std::shared_ptr` owns must
/// outlive this object. Neither movable nor copyable; not thread-safe.
class DistributedGradients {
 public:
  KOLO_EXPORT explicit DistributedGradients(::torch::nn::Module& module,
                                            const DistributedOptimizerOptions& options = {});
  template <HoldsModule Holder>
  explicit DistributedGradients(const Holder& holder,
                                const DistributedOptimizerOptions& options = {})
      : DistributedGradients(static_cast<::torch::nn::Module&>(*holder.ptr()), options) {}
  /// For other modules, such as a `torch::jit::Module`, which must outlive this object.
  template <AnyModule Module>
    requires(!HoldsModule<Module> && !std::derived_from<Module, ::torch::nn::Module>)
  explicit DistributedGradients(const Module& module,
                                const DistributedOptimizerOptions& options = {})
      : reducer_([&module] { return detail::module_parameters(module); }, options) {}
  KOLO_EXPORT explicit DistributedGradients(const NamedParameters& parameters,
                                            const DistributedOptimizerOptions& options = {});
  DistributedGradients(const DistributedGradients&) = delete;
  DistributedGradients& operator=(const DistributedGradients&) = delete;

  /// Returns a guard. While it lives, backward passes accumulate gradients on this rank only. The
  /// next pass that reduces includes their gradients.
  [[nodiscard]] NoSync no_sync() const { return reducer_.no_sync(); }

  /// Reduces the gradients of passes that stayed on this rank. Collective if there are any.
  KOLO_EXPORT void synchronize();

  /// Call it after a new session has begun; see DistributedOptimizer's `rejoin`. Collective in the
  /// world.
  KOLO_EXPORT void rejoin();

 private:
  detail::GradientReducer::Groups groups_{};  // the listed tensors; empty for a module
  detail::GradientReducer reducer_;
};

/// Options of `clip_grad_norm`.
struct ClipOptions {
  double norm_type = 2.0;         ///< The p of the p-norm; positive. Infinity: maximum norm.
  bool refuse_nonfinite = false;  ///< Throw Error, on all ranks, for a norm that is not finite.
};

/// Calls the optimizer's `synchronize`, then scales the gradients if their joint norm exceeds
/// `max_norm`. Returns the norm before scaling. Call `optimizer.step()` afterwards:
///
///     loss.backward();
///     kolo::clip_grad_norm(optimizer, 1.0);
///     optimizer.step();
///
/// The norm and the gradients have the same bits on every rank of the optimizer's set. Collective
/// in that set, like `synchronize`. The norm of a ShardedOptimizer is summed over shards, so its
/// last bits may differ from those of a DistributedOptimizer. The optimizer may be passed as a
/// reference to its base class. For an optimizer of LibTorch, such as one beside
/// DistributedGradients, nothing is communicated. If it has the shards of a FullySharded,
/// the norm is that of all shards, and the call is collective. Throws InvalidArgument, on this
/// rank, if `max_norm` or the norm type is not positive, and the errors of `synchronize`.
///
/// The host waits for the GPU to return the norm of gradients on a GPU.
KOLO_EXPORT double clip_grad_norm(::torch::optim::Optimizer& optimizer, double max_norm,
                                  const ClipOptions& options = {});

/// The same without waiting for the GPU: the norm is a tensor of one f64 without dimensions, on the
/// GPU of the gradients, and decides there. With gradients on CPUs too, or `refuse_nonfinite`, the
/// host waits. Gradients on CPUs give the same results as with `clip_grad_norm`.
KOLO_EXPORT ::torch::Tensor clip_grad_norm_on_device(::torch::optim::Optimizer& optimizer,
                                                     double max_norm,
                                                     const ClipOptions& options = {});

/// Places the gradients that LibTorch allocates for a module in memory that the ranks of the host
/// share, as long as this object lives. Kolo reduces such gradients in place, with fewer copies:
///
///     const kolo::Session session;
///     const kolo::SharedGradients shared(*model);
///
/// LibTorch does not tell its allocator the purpose of a tensor. So every CPU tensor that is
/// allocated during a backward pass and has exactly as many bytes as one of the parameters is in
/// shared memory: gradients, and some temporary tensors. Parameters smaller than 4 KiB are ignored.
/// The memory of a freed tensor is kept for the next tensor of the same size until this object is
/// destroyed. Tensors stay valid after that, and after the session ends. If ranks cannot share
/// memory, or there is not enough of it, ordinary memory is used. A forked child sees later changes
/// to its parent's gradients, as with SharedVector.
///
/// Construct it after the module has its final dtypes, and a new one in each session. It changes
/// the allocator of the whole process; set an allocator of your own, with `c10::SetCPUAllocator`,
/// before. The constructor throws NotInitialized outside a session, and InvalidArgument if an
/// allocator of the program cannot be replaced. Not every rank needs to construct one. Thread-safe.
/// Neither movable nor copyable.
class SharedGradients {
 public:
  template <AnyModule Module>
  explicit SharedGradients(const Module& module)
      : SharedGradients(detail::module_parameters(module)) {}
  KOLO_EXPORT explicit SharedGradients(const NamedParameters& parameters);
  KOLO_EXPORT ~SharedGradients();
  SharedGradients(const SharedGradients&) = delete;
  SharedGradients& operator=(const SharedGradients&) = delete;

  /// The number of bytes that this object has allocated: in use by tensors, or kept for reuse.
  [[nodiscard]] KOLO_EXPORT std::size_t bytes() const;

 private:
  std::shared_ptr<internal::SharedBlocks> blocks_;
};

}  // namespace kolo
