// SPDX-License-Identifier: Apache-2.0
// The storage of LibTorch gradients for PassReducer.
#pragma once

#include <torch/types.h>

#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kolo/optimizer.hpp"
#include "torch/optimizer/gradient_hook.hpp"
#include "training/optimizer/gradient_storage.hpp"
#include "training/optimizer/optimizer_setup.hpp"

namespace kolo::internal {

/// The gradient that accumulated between two submissions, while it is reduced.
struct RoundGradient {
  ::torch::Tensor gradient{};
  ::torch::Tensor buffer{};  // its elements as they are reduced: the gradient or a copy
};

struct Parameter {
  std::string name;
  ::torch::Tensor tensor;
  GradientHook hook{};
  bool retired = false;                   // the module or optimizer no longer has it
  bool released = false;                  // `tensor` is only in its place
  bool elsewhere = false;                 // another optimizer reduces it
  std::int64_t reductions_elsewhere = 0;  // that optimizer's reductions at the end of the last step
  bool waiting = false;                   // a pass without reduction accumulated here
  bool mixed = false;                     // that pass accumulated onto the reduced gradient
  // Sparse dimensions of the last gradient, here or on another rank; 0 if it was dense.
  std::int64_t sparse_dims = 0;
  bool expected = false;        // another rank has a gradient
  ::torch::Tensor set_aside{};  // the result of earlier passes, while a pass is reduced
  std::deque<RoundGradient> rounds{};
  bool detached = false;  // the pass has failed here, and the gradient is no longer part of it
  // The gradient that holds the last result, and its version when it received that result. The
  // pointer is weak, so that the memory can be freed.
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> reduced{
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>()};
  std::int64_t reduced_version = 0;
  // The last version that was compared with zeros, since the program had changed the result; -1:
  // none.
  mutable std::int64_t compared_version = -1;
  mutable bool is_zeroed = false;  // that version has only zeros
  // The parameter of a slot that was released. The pointer keeps its address, which names the state
  // in the optimizer, from being the address of another parameter.
  c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> former{
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>()};
};

struct SparseReductionOptions {
  std::string name;  ///< Name of the operation.
  std::int64_t step;
  ProcessSet process_set;
  double scale;  ///< Factor of the sum over the ranks.
};

/// Submits the reduction of one sparse (COO) gradient. `wait` sets `*result` to the reduced
/// gradient, coalesced and equal on all ranks, and throws Mismatch on every rank if ranks were at
/// different steps. A gradient without entries may have another number of sparse dimensions than
/// the other ranks' gradients: `sparse_dims`, if not 0, is the number to use for it.
[[nodiscard]] std::unique_ptr<OwnReduction> reduce_sparse(const ::torch::Tensor& gradient,
                                                          std::int64_t sparse_dims,
                                                          SparseReductionOptions options,
                                                          ::torch::Tensor* result);

/// A reduced gradient is set aside before another pass accumulates, and added back afterwards. It
/// cannot be reduced again, not even by an average, because ranks that have joined would take part
/// with zeros.
class TorchGradientStorage : public GradientStorage {
 public:
  /// Messages begin with `subject`.
  TorchGradientStorage(DistributedOptimizerOptions options, const char* subject);

  /// A text that must be equal on all ranks, besides the options.
  [[nodiscard]] virtual std::string description() const { return {}; }

  [[nodiscard]] const char* subject() const { return subject_; }
  std::deque<Parameter>& parameters() { return parameters_; }
  [[nodiscard]] const std::deque<Parameter>& parameters() const { return parameters_; }

  /// True if the parameter is retired and only this object refers to it.
  [[nodiscard]] bool is_unused(const Parameter& parameter) const {
    return parameter.retired && !parameter.released &&
           parameter.hook.is_unused(parameter.tensor, references());
  }
  /// Frees an unused parameter and its gradient. A frozen parameter without elements takes its
  /// place. Not to be called in a pass.
  virtual void release(std::size_t slot);

  /// Called before a gradient accumulates in a pass that reduces.
  virtual void make_room(std::size_t slot);
  /// Called before a gradient accumulates in a pass without reduction.
  virtual void accumulate_locally(std::size_t slot);
  /// Called after a gradient has accumulated in a pass without reduction.
  virtual void accumulated_locally(std::size_t /*slot*/) {}
  /// Called in place of these functions, at the end of a pass in which the parameter had no hooks.
  virtual void accumulated_unnoticed(std::size_t slot);
  /// Replaces the parameter's gradient by `copy`, which has the same elements in other memory.
  void move_gradient(const ::torch::Tensor& parameter, ::torch::Tensor copy);
  /// Throws InvalidArgument if a pass without reduction has accumulated onto a reduced gradient.
  virtual void require_unmixed() const;
  /// Treats gradients that changed since they were reduced as new ones, which the program has set.
  virtual void forget_changed();
  /// Throws InvalidArgument for a gradient that no operation can reduce.
  virtual void require_reducible(std::size_t slot, bool grouped) const;
  /// Throws InvalidArgument if the gradients of two parameters share memory.
  virtual void require_disjoint() const;
  /// Forgets which gradients are reduced or wait, because they are about to be zeroed.
  virtual void forget();

  [[nodiscard]] bool takes_part(std::size_t slot) const override;
  [[nodiscard]] int content(std::size_t slot) const override;
  [[nodiscard]] bool is_waiting(std::size_t slot) const override;
  void expect(std::size_t slot, int content) override;
  TensorView open(std::size_t slot, double factor) override;
  std::unique_ptr<OwnReduction> open_own(std::size_t slot, double factor, const std::string& name,
                                         std::int64_t number) override;
  void scale(std::size_t slot, double factor) override;
  void cancel(std::size_t slot) override;
  Future<void> submit(std::span<const std::size_t> slots,
                      const detail::GroupedAllreduceCall& call) override;
  void close(std::size_t slot, bool keep) override;
  void detach(std::size_t slot) override;

 protected:
  /// Throws InvalidArgument for a gradient that autograd can differentiate, or of a dtype that Kolo
  /// does not have.
  static void require_plain(const Parameter& parameter);
  /// Whether each tensor has only zeros. All tensors are on one device, which is asked once: the
  /// answer of a GPU takes as long as the work that is queued there.
  [[nodiscard]] static std::vector<bool> are_zero(const std::vector<::torch::Tensor>& tensors);
  [[nodiscard]] bool is_reduced(const Parameter& parameter) const;
  /// The number of references to each parameter besides those of its hook.
  [[nodiscard]] virtual std::size_t references() const { return 1; }

 private:
  void compare_with_zeros(const ::torch::Device& device) const;
  void require_unmixed(std::size_t slot) const;
  [[nodiscard]] bool travels_sparse(const Parameter& parameter) const;
  /// Returns the gradient; an undefined tensor if it is reduced already or under reduction.
  ::torch::Tensor take(Parameter& parameter) const;
  void put(Parameter& parameter, ::torch::Tensor total) const;

  DistributedOptimizerOptions options_;
  const char* subject_;
  std::deque<Parameter> parameters_;
};

}  // namespace kolo::internal
