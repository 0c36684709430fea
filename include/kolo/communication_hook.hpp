// SPDX-License-Identifier: Apache-2.0
// Communication hooks: alternatives to an allreduce of all elements for summing gradients.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kolo/error.hpp"
#include "kolo/export.hpp"
#include "kolo/future.hpp"
#include "kolo/process_set.hpp"
#include "kolo/state_dict.hpp"
#include "kolo/tensor.hpp"

namespace kolo {

/// A communication hook threw on the rank in `ranks()`, so this pass reduced no gradients. Every
/// rank of the set gets this error; on that rank, the message gives the cause, and `tensor()` names
/// the gradient or group. The gradients of the pass are invalid: call `zero_grad`. The session
/// stays usable, and the next pass is reduced.
class KOLO_EXPORT HookFailed : public Error {
 public:
  using Error::Error;
};

namespace detail {
class HookClaim;

/// A stage for `then` that receives the operation's name and returns a Future.
template <typename F>
concept SubmittingStage = requires(F& stage, const std::string& name) {
  { stage(name) } -> std::derived_from<FutureBase>;
};

/// A stage for `then` that takes nothing and returns nothing.
template <typename F>
concept LocalStage = requires(F& stage) {
  { stage() } -> std::same_as<void>;
};

}  // namespace detail

/// The stages of one reduction, in order. Move-only.
class HookStages {
 public:
  /// Adds a stage that submits one operation under the given name and returns the operation's
  /// Future. The next stage begins when the operation is done. The Future's value is ignored: use a
  /// call that writes to the hook's memory, and keep that memory alive.
  template <detail::SubmittingStage F>
  HookStages&& then(F stage) && {
    add(true, [stage = std::make_shared<F>(std::move(stage))](const std::string& name) {
      auto future = (*stage)(name);
      return std::shared_ptr<detail::FutureBase>(
          std::make_shared<decltype(future)>(std::move(future)));
    });
    return std::move(*this);
  }

  /// Adds a stage that only computes.
  template <detail::LocalStage F>
  HookStages&& then(F stage) && {
    add(false, [stage = std::make_shared<F>(std::move(stage))](const std::string&) {
      (*stage)();
      return std::shared_ptr<detail::FutureBase>();
    });
    return std::move(*this);
  }

  /// For internal use.
  struct Stage {
    bool submits;
    std::function<std::shared_ptr<detail::FutureBase>(const std::string&)> run;
  };
  [[nodiscard]] std::vector<Stage>& list() noexcept { return list_; }

  HookStages() = default;
  HookStages(HookStages&&) noexcept = default;
  HookStages& operator=(HookStages&&) noexcept = default;
  HookStages(const HookStages&) = delete;
  HookStages& operator=(const HookStages&) = delete;
  ~HookStages() = default;

 private:
  template <typename Run>
  void add(bool submits, Run run) {
    list_.push_back({submits, std::move(run)});
  }

  std::vector<Stage> list_;
};

/// A gradient, or a group of gradients, that is reduced as one. The result is
/// `postscale * sum over ranks of (prescale * gradient)`, with the same bits on all ranks. For an
/// average, `postscale` includes the division by the set's size.
struct GradientBucket {
  /// A name that is the same in every pass and in resumed runs, so hooks can key their state by it.
  std::string name;
  /// The gradients, in CPU memory, without overlap. Valid through the last stage.
  std::vector<TensorView> tensors;
  double prescale = 1.0;
  double postscale = 1.0;
  ProcessSet process_set{};  ///< For the hook's operations. It has at least two members.
  /// Identifies each tensor of the bucket. At first these are the tensors' indices in their group,
  /// ascending, or {0} for an ungrouped gradient, without the indices of frozen parameters. If a
  /// parameter of the group is replaced, all its indices grow. State that a hook has kept belongs
  /// to other tensors if `places` has changed since: discard it.
  std::vector<std::size_t> places{};
};

/// Sums gradients over the ranks in place of an allreduce. Set it in the options of a
/// DistributedOptimizer, DistributedGradients, or a ShardedOptimizer with `Sharding::state`, on all
/// ranks, with one hook per optimizer:
///
///     class Halves : public kolo::CommunicationHook {
///       std::string description() const override { return "halves"; }
///       bool handles(std::span<const kolo::TensorView> bucket) const noexcept override;
///       kolo::HookStages reduce(kolo::GradientBucket bucket) override {
///         auto packed = std::make_shared<std::vector<float>>();
///         return kolo::HookStages()
///             .then([=](const std::string& name) {
///               *packed = pack(bucket);
///               return kolo::allreduce_async(
///                   *packed, {.name = name, .op = kolo::ReduceOp::sum,
///                             .process_set = bucket.process_set});
///             })
///             .then([=] { unpack(*packed, bucket); });
///       }
///     };
///
/// Stages run on backward's thread when a later gradient becomes ready, or on the thread that waits
/// for the gradients; never on the thread that runs Kolo. They may be slow and call Kolo, but must
/// not wait for later submissions of other ranks. Calls of one hook never run concurrently.
///
/// All ranks must run the same stages in the same order for any gradient values, and at least one
/// stage must submit. If a stage throws, the pass fails with HookFailed on all ranks, and no rank
/// runs the remaining stages of the bucket. So change the hook's state and the tensors in the last
/// stage only. Once a rank has joined, operations that need that rank (such as alltoall) fail, and
/// the bucket is reduced by an allreduce instead.
///
/// A hook never sees gradients in GPU memory, sparse gradients, or gradients of a process set of
/// one rank. These gradients, and buckets that the hook does not handle, are reduced as without a
/// hook, with the `compression` of the options.
class KOLO_EXPORT CommunicationHook {
 public:
  CommunicationHook() = default;
  CommunicationHook(const CommunicationHook&) = delete;
  CommunicationHook& operator=(const CommunicationHook&) = delete;
  virtual ~CommunicationHook() = default;

  /// The hook and its options, for error messages. The optimizer's constructor throws Mismatch if
  /// the descriptions differ between ranks.
  [[nodiscard]] virtual std::string description() const = 0;

  /// Whether the hook reduces these tensors. Must depend only on shapes and dtypes, so that all
  /// ranks make the same decision.
  [[nodiscard]] virtual bool handles(std::span<const TensorView> bucket) const noexcept = 0;

  /// Returns the stages that reduce the bucket. Called once per reduction; must not submit.
  virtual HookStages reduce(GradientBucket bucket) = 0;

  /// State for checkpoints, to be saved between steps: `state` is equal on all ranks, and
  /// `per_rank_state`, such as compression errors, belongs to this rank
  /// (`CheckpointExtras::per_rank`).
  [[nodiscard]] virtual StateDict state() const { return {}; }
  [[nodiscard]] virtual StateDict per_rank_state() const { return {}; }

  /// Loads what `state` returned, and resets this rank's state. A run that resumes on another
  /// number of ranks has no per-rank state to load, so it continues with the reset state. Throws
  /// InvalidArgument for any other state.
  virtual void load_state(const StateDict& /*state*/) {}
  /// Loads what `per_rank_state` returned, after `load_state`.
  virtual void load_per_rank_state(const StateDict& /*state*/) {}

 private:
  friend class detail::HookClaim;
  std::atomic<bool> taken_{false};  // by an optimizer
};

/// Options of `int8`.
struct Int8Options {
  /// Elements that share a scale: a multiple of 16, at most 65536.
  int block = 256;
  /// Buckets with fewer elements are left to the allreduce.
  std::int64_t min_elements = 1024;
  /// Adds the rounding error to the next gradient.
  bool error_feedback = true;
};

/// A hook that sends gradients as 8-bit integers with an f32 scale per block: about a quarter of
/// f32's bytes, on any number of ranks. Each rank owns a slice of a bucket. It receives this slice
/// from all ranks, sums it in f32, rounds the sum to 8 bits again, and sends it to all.
///
/// With error feedback (Seide et al., 2014, "1-bit stochastic gradient descent"; for both roundings
/// as in Tang et al., 2019, https://arxiv.org/abs/1905.05957) each rank keeps the error of its
/// roundings, one f32 per element, as `per_rank_state` and adds it to its next gradient. A block
/// with an infinity or NaN on some rank, or whose sum overflows f32, becomes NaN on all ranks, and
/// its errors stay as they are. Blocks whose elements are all below 1e-35 in magnitude count as
/// zero.
///
/// Handles f16, bf16, f32 and f64 gradients; needs about 12 bytes of memory per element. Throws
/// InvalidArgument for invalid options.
[[nodiscard]] KOLO_EXPORT std::shared_ptr<CommunicationHook> int8(const Int8Options& options = {});

/// Options of `power_sgd`.
struct PowerSgdOptions {
  /// Rank of the approximation, 1 to 64. Twice the rank doubles bytes and computation.
  int rank = 4;
  /// Minimum factor by which a tensor must shrink to be compressed; above 1.
  double min_compression = 2.0;
  /// Starts from the last approximation instead of the same random vectors in every step.
  bool warm_start = true;
  /// Adds the approximation's error to the next gradient. Without it accuracy suffers.
  bool error_feedback = true;
  /// Seed of the random vectors.
  std::uint64_t seed = 0;
};

/// A hook that sends an approximation of low rank (Vogels et al., 2019, "PowerSGD",
/// https://arxiv.org/abs/1905.13727). A gradient with at least two dimensions is viewed as an
/// n x m matrix: n is its first dimension longer than 1, and m is the product of the later ones.
/// With `rank` r, it takes (n + m) r elements of f32 in two allreduces. Other gradients of the
/// group are sent whole in the first allreduce. The hook does not handle buckets without a gradient
/// that is worth compressing.
///
/// Each rank keeps the error of its approximations, one f32 per element, as `per_rank_state`. The
/// right factors are the `state`. If a gradient of a bucket has an infinity or NaN on some
/// rank, or a factor overflows, the whole bucket becomes NaN on all ranks and the state is
/// unchanged.
///
/// Ranks compute their results from the same factors by f32 additions and multiplications in the
/// same order, without fused operations, so the results have the same bits on any processor.
/// Handles f16, bf16, f32 and f64 gradients. Throws InvalidArgument for invalid options.
[[nodiscard]] KOLO_EXPORT std::shared_ptr<CommunicationHook> power_sgd(
    const PowerSgdOptions& options = {});

}  // namespace kolo
