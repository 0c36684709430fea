// DistributedOptimizer: an optimizer whose gradients are averaged over the ranks before each step.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/export.hpp"
#include "kolo/process_set.hpp"

namespace kolo {

/// What several backward passes before one step give: the sum of their gradients, or the mean.
enum class Accumulation : std::uint8_t { sum, mean };

/// Must be alike on all ranks of the set. Wrong values are InvalidArgument where the optimizer is
/// made.
struct DistributedOptimizerOptions {
  ReduceOp op = ReduceOp::average;  ///< average, sum or adasum.
  Compression compression = Compression::none;
  /// Gradients travel in the last of this many backward passes; at least 1.
  int backward_passes_per_step = 1;
  Accumulation accumulation = Accumulation::sum;
  /// An average is taken in two parts: gradients are divided by this before they are added, and by
  /// the number of ranks over this afterwards. Positive and finite; other than 1 only with average.
  double gradient_predivide_factor = 1.0;
  /// Names of parameters whose gradients are reduced as one operation, all or none.
  std::vector<std::vector<std::string>> groups{};
  /// 0: none; else consecutive parameters make about this many groups. Not together with `groups`.
  int num_groups = 0;
  bool sparse_as_dense = false;  ///< Sparse gradients are made dense before they travel.
  ProcessSet process_set{};      ///< Who takes part. On other ranks the optimizer only steps.
};

/// A custom optimizer: named gradients, always the same ones in the same order, and a step
/// that uses them. Gradients are read and written where they lie.
template <typename T>
concept GradientOptimizer = requires(T& optimizer) {
  { optimizer.gradients() } -> std::convertible_to<std::vector<NamedTensor>>;
  optimizer.step();
};

namespace detail {

/// Reduces the named gradients of one optimizer. One thread at a time.
class NamedGradientReducer {
 public:
  using Gradients = std::vector<NamedTensor>;

  /// Collective.
  KOLO_EXPORT NamedGradientReducer(const Gradients& gradients,
                                   const DistributedOptimizerOptions& options);
  KOLO_EXPORT NamedGradientReducer(NamedGradientReducer&&) noexcept;
  KOLO_EXPORT NamedGradientReducer& operator=(NamedGradientReducer&&) noexcept;
  KOLO_EXPORT ~NamedGradientReducer();

  KOLO_EXPORT void ready(const Gradients& gradients, const std::string& name);
  KOLO_EXPORT void end_pass();
  KOLO_EXPORT void synchronize(const Gradients& gradients);
  KOLO_EXPORT void end_step();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace detail

/// Reduces the gradients of a custom optimizer over the ranks before each of its steps:
///
///     kolo::DistributedOptimizer optimizer(model, {.op = kolo::ReduceOp::average});
///     ...                         // compute the gradients
///     optimizer.ready("weight");  // optional: this one is complete, its reduction starts now
///     optimizer.step();           // reduces the others, waits for all, and steps
///
/// Construction is collective: all ranks of the set make their optimizers in the same order, and
/// every rank gets Mismatch if names, shapes, dtypes or options differ. It throws InvalidArgument
/// for options that cannot be used and for a name that occurs twice. Beside those of `allreduce`,
/// errors in a gradient are thrown by `synchronize` and `step`; the step is over then, on all ranks
/// alike. The wrapped optimizer must outlive this one. Movable, not copyable; one thread at a time.
/// `kolo/torch.hpp` has the one for LibTorch's optimizers.
template <typename Optimizer>
class DistributedOptimizer {
 public:
  // clang-format off
  explicit DistributedOptimizer(Optimizer& optimizer,
                                const DistributedOptimizerOptions& options = {})
    requires GradientOptimizer<Optimizer>
      : optimizer_(&optimizer), reducer_(optimizer.gradients(), options) {}
  // clang-format on

  /// The gradient of this name is complete in this backward pass, and is not touched until
  /// `synchronize` or `step`. In the last pass of a step its reduction starts; of a group, when all
  /// its gradients are ready. Throws InvalidArgument for an unknown name and for one that was ready
  /// already.
  void ready(const std::string& name) { reducer_.ready(optimizer_->gradients(), name); }

  /// Ends a backward pass after which gradients go on adding up: all but the last of the
  /// `backward_passes_per_step`. Throws InvalidArgument if there would be more than that. `step`
  /// may follow after fewer passes, say at the end of the data, if it does on all ranks alike.
  void end_pass() { reducer_.end_pass(); }

  /// Waits until all gradients are reduced, say to clip them. `step` then does not wait again.
  void synchronize() { reducer_.synchronize(optimizer_->gradients()); }

  /// Synchronizes, unless that was done, and lets the optimizer step.
  void step() {
    synchronize();
    optimizer_->step();
    reducer_.end_step();
  }

 private:
  Optimizer* optimizer_;
  detail::NamedGradientReducer reducer_;
};

/// Every rank's tensors become copies of `root`'s. Collective in the set; `root` is a rank of the
/// world and a member. Throws Mismatch on every rank if names, shapes or dtypes differ: nothing was
/// changed then.
KOLO_EXPORT void broadcast_parameters(const std::vector<NamedTensor>& parameters, int root,
                                      const ProcessSet& set = {});

}  // namespace kolo
