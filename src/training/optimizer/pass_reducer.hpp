// SPDX-License-Identifier: Apache-2.0
// Reduces the gradients of one optimizer, pass by pass; knows no framework.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/cuda.hpp"
#include "kolo/export.hpp"
#include "kolo/optimizer.hpp"
#include "training/agreement.hpp"
#include "training/first_error.hpp"
#include "training/optimizer/gradient_buckets.hpp"
#include "training/optimizer/gradient_storage.hpp"
#include "training/optimizer/pass_comparison.hpp"
#include "training/optimizer/pass_hooks.hpp"
#include "training/optimizer/pass_summary.hpp"
#include "training/optimizer/step_number.hpp"
#include "training/optimizer/submitted_operations.hpp"

namespace kolo::internal {

/// Reduces gradients in buckets, passes and rounds. A bucket holds the gradients that one operation
/// reduces: a single one or a group. A pass ends when all gradients are final. Within a pass, a
/// gradient may accumulate again after its bucket was submitted. What accumulates from then on is
/// the bucket's second round, which is submitted at the end of the pass.
///
/// The ranks may submit different buckets, and one round or two. At the end of a pass they agree on
/// the largest number of rounds of each bucket (`PassSummary`), and a rank that has submitted fewer
/// submits zeros. No rank submits a second round before that, so a rank whose backward throws knows
/// all operations of the others. The name of an operation does not depend on the pass, but its
/// number does: a rank that is one pass or one step ahead gets Mismatch.
///
/// Not thread-safe.
class PassReducer {
 public:
  /// With `agrees`, the ranks agree on the rounds at the end of each pass. Without, every pass
  /// reduces every bucket once. `storage` must outlive this object.
  KOLO_EXPORT PassReducer(GradientStorage& storage, const DistributedOptimizerOptions& options,
                          bool agrees);
  KOLO_EXPORT ~PassReducer();
  PassReducer(const PassReducer&) = delete;
  PassReducer& operator=(const PassReducer&) = delete;

  /// Collective. Gives the optimizer its number. Throws Mismatch on all ranks unless they have the
  /// same options, groups and gradients; `gradients` describes each slot, and `sharding` completes
  /// the description of the options. Deferred agreements (`detail::agreements_are_deferred`) are
  /// left to the first session.
  KOLO_EXPORT void agree(const char* subject, const std::string& sharding,
                         std::vector<Item> gradients);
  /// The number of the optimizer, which begins the names of its operations.
  [[nodiscard]] std::int64_t number() const { return number_; }

  /// Adds the next slot, to a group or as a bucket of its own.
  KOLO_EXPORT void add(const std::string& name, std::optional<std::size_t> group);
  /// Adds the next slot in the place of another one, which becomes a bucket of its own under
  /// `retired`. To be called between passes.
  KOLO_EXPORT void replace(std::size_t slot, const std::string& retired);
  [[nodiscard]] std::size_t slots() const { return buckets_.slots(); }
  /// The comparison of parameters, which needs `PassComparison::set_parameters`.
  [[nodiscard]] PassComparison& comparison() { return comparison_; }

  /// The number of backward passes of this step that have ended.
  [[nodiscard]] int passes() const { return passes_; }
  /// True in the last of `backward_passes_per_step`, and in every pass after a reduction.
  [[nodiscard]] bool in_last_pass() const {
    return reduced_ || passes_ + 1 >= options_.backward_passes_per_step;
  }
  /// Drops passes that ended without reduction.
  KOLO_EXPORT void forget_passes();
  /// Drops passes that began before ranks joined, or before a session began, and were not reduced:
  /// they belong to no step of the other ranks, which have completed the submitted operations.
  /// Returns whether passes were dropped, and whether these had submitted operations. To be called
  /// before anything else in a new pass or step.
  enum class Cut : std::uint8_t { nothing, passes, operations };
  KOLO_EXPORT Cut drop_before_join() noexcept;
  /// Drops every pass that has begun and not ended, because a new session has begun.
  KOLO_EXPORT void rejoin() noexcept;
  /// True if gradients are reduced, and none has accumulated since.
  [[nodiscard]] bool is_final() const { return reduced_ && local_passes_ == 0; }
  [[nodiscard]] int local_passes() const { return local_passes_; }
  /// The number of passes that have reduced, in all steps.
  [[nodiscard]] std::int64_t reductions() const { return reductions_; }
  /// Continues the count of `reductions` from this number.
  void set_reductions(std::int64_t reductions) { reductions_ = reductions; }

  /// Begins a pass. Its gradients are reduced if `reducing`; otherwise they accumulate on this
  /// rank. `counts`: it is a backward pass, and not a reduction of gradients that earlier passes
  /// have left. First ends a pass that failed.
  KOLO_EXPORT void begin(bool reducing, bool counts = true);
  /// May be called while another thread ends the pass.
  [[nodiscard]] bool active() const { return active_ && !failed_; }
  /// True until all operations of a pass are done, also if it has failed.
  [[nodiscard]] bool is_open() const { return active_; }
  [[nodiscard]] bool reducing() const { return reducing_; }
  /// Sets the factor by which gradients are multiplied before they are submitted, and the prescale
  /// of operations.
  KOLO_EXPORT void set_scales(double factor, double prescale);

  /// Notes that the gradient is complete for now. Submits its bucket if that is complete too.
  KOLO_EXPORT void ready(std::size_t slot);
  [[nodiscard]] KOLO_EXPORT bool is_submitted(std::size_t slot) const;
  /// Submits the gradients that are held back. Called before the end of a pass, which can still
  /// fail if this throws.
  KOLO_EXPORT void submit_held();
  /// Submits every bucket that was not submitted in this pass.
  KOLO_EXPORT void submit_rest();

  /// Ends the reducing passes of all optimizers that one backward involves. The ranks may end the
  /// passes in different orders, and some ranks one pass at a time. `rethrow` throws their errors.
  KOLO_EXPORT static void end_together(const std::vector<PassReducer*>& passes) noexcept;
  /// Waits for the operations of a pass all of whose buckets are submitted, and ends it.
  KOLO_EXPORT void finish() noexcept;
  /// Throws the first error of the pass, or that of the comparison of parameters.
  KOLO_EXPORT void rethrow();
  /// Ends a pass, and throws its first error. A pass without reduction is only counted.
  KOLO_EXPORT void end_pass();

  /// Gives up a pass that this rank cannot complete, before its end: tells the other ranks, and
  /// submits zeros for the operations that they may wait for. Does not wait: `begin` or `settle`
  /// does.
  KOLO_EXPORT void fail_pass() noexcept;
  /// Waits for the operations of a pass that failed on this rank.
  KOLO_EXPORT void settle() noexcept;

  /// Ends the step. To drop a step, call `forget_passes` instead: the number of the step then stays
  /// the same, which tells ranks that stepped from ranks that did not.
  KOLO_EXPORT void end_step();
  [[nodiscard]] StepNumber& step() { return step_; }

 private:
  struct PendingReduction {
    std::vector<std::size_t> slots{};
    int round = 0;
    std::string name{};  // the name of its first operation
    std::unique_ptr<OwnReduction> own{};
    const HookChain* chain = nullptr;
    Future<void> future{};
    std::vector<TensorView> held{};  // gradients on the GPU that are not submitted yet
  };

  /// The gradients that are submitted next, together.
  struct Held {
    std::size_t operations = 0;
    std::int64_t bytes = 0;
    detail::StreamInUse stream{};  // has computed them
  };

  /// A pass that has not submitted all its operations yet.
  struct Ending {
    PassReducer* pass;
    /// So many operations each hook is to have submitted next; 0 before the ranks have agreed on
    /// what the pass reduces.
    int operations = 0;

    /// The future that `submit_next` waits for; null if it need not wait.
    [[nodiscard]] const detail::FutureBase* awaited() const;
    /// Returns true once everything is submitted.
    [[nodiscard]] bool submit_next() noexcept;
  };

  [[nodiscard]] bool is_complete(const Bucket& bucket) const;
  [[nodiscard]] std::string operation_name(const Bucket& bucket, int round) const;
  [[nodiscard]] std::string hook_operation(const std::string& bucket, int operation) const;
  void submit(Bucket& bucket);
  void submit_slots(const Bucket& bucket, const std::vector<std::size_t>& slots);
  void hold(PendingReduction&& pending);
  [[nodiscard]] bool holds(const Bucket& bucket) const;
  void drop_held() noexcept;
  [[nodiscard]] Future<void> allreduce(std::span<const std::size_t> slots, const std::string& name,
                                       const std::vector<TensorView>& views);
  [[nodiscard]] const HookChain& begin_chain(const Bucket& bucket,
                                             const std::vector<std::size_t>& slots,
                                             const std::vector<TensorView>& views);
  [[nodiscard]] bool was_submitted() const { return summary_.is_submitted() || !pending_.empty(); }
  void note_completed();
  void submit_summary() noexcept;
  void fill_summary();
  void call_summary();
  /// The future that the end of the pass waits for: of the summary, or of the other ranks'
  /// operations. Null if there is neither.
  [[nodiscard]] const detail::FutureBase* awaited() const;
  /// Takes what `awaited` brings, and submits what follows from it. Returns false if the pass
  /// awaits something further.
  [[nodiscard]] bool learn() noexcept;
  void take_summary();
  [[nodiscard]] bool knows_rounds() const { return summary_.is_agreed() && !differs_; }
  void gather_submitted();
  void refuse_partial();
  void submit_refusal(const std::string& name);
  static bool wait_for_any(const std::vector<Ending>& open) noexcept;
  void submit_missing() noexcept;
  void refuse_frozen(Bucket& bucket);
  [[nodiscard]] bool reach_hooks(int operations) noexcept;
  void submit_hook_status() noexcept;
  static void wait_for(PendingReduction& pending);
  void finish_pending() noexcept;
  void leave_pass();

  GradientStorage& storage_;
  DistributedOptimizerOptions options_;
  bool agrees_;
  bool is_member_;
  std::int64_t number_ = 0;
  const char* subject_ = "";
  StepNumber step_{};
  GradientBuckets buckets_{};
  std::vector<bool> fresh_{};  // by slot: complete, and not yet submitted
  double factor_ = 1.0;
  double prescale_;
  int passes_ = 0;        // in this step
  int local_passes_ = 0;  // since the last pass that reduced
  bool reduced_ = false;  // a pass of this step reduced
  std::int64_t reductions_ = 0;
  std::atomic<bool> active_ = false;
  bool reducing_ = false;
  bool counts_ = false;               // `passes_` includes this pass
  std::atomic<bool> failed_ = false;  // this pass has failed on this rank
  FirstError error_{};                // the first error of this pass
  bool differs_ = false;       // the ranks have different buckets, or are in different passes
  bool met_step_end_ = false;  // the summary of this pass was submitted again
  PassComparison comparison_;
  float refusal_ = 0.0F;  // the memory of operations that match no other
  PassSummary summary_{};
  SubmittedOperations submitted_{};
  PassHooks hooks_;
  std::vector<PendingReduction> pending_{};  // in this pass
  std::size_t completed_ = 0;  // number of pending reductions that the storage knows to be done
  Held held_{};
};

}  // namespace kolo::internal
