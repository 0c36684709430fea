// SPDX-License-Identifier: Apache-2.0
// Reduces the gradients of one optimizer, pass by pass; knows no framework.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/overlap.hpp"
#include "kolo/collectives.hpp"
#include "kolo/export.hpp"
#include "kolo/optimizer.hpp"
#include "training/hooks/hook_chain.hpp"
#include "training/optimizer/optimizer_setup.hpp"
#include "training/optimizer/step_number.hpp"

namespace kolo::internal {

/// The operation of a gradient that does not travel as dense memory.
class OwnReduction {
 public:
  virtual ~OwnReduction() = default;
  /// Waits for the operation. Throws its error.
  virtual void wait() = 0;
};

/// Where gradients are. They are known by their position, the slot.
class GradientStorage {
 public:
  virtual ~GradientStorage() = default;

  /// False for a gradient that nobody reduces, such as that of a frozen parameter.
  [[nodiscard]] virtual bool takes_part(std::size_t /*slot*/) const { return true; }
  /// A pass ends: `content` follows.
  virtual void prepare_end() {}
  /// 0: this rank has no gradient. 1: a dense one. 1 + k: a sparse one with k sparse dimensions.
  [[nodiscard]] virtual int content(std::size_t /*slot*/) const { return 1; }
  /// True if a pass without reduction left a gradient, which the next reduction takes along.
  [[nodiscard]] virtual bool is_waiting(std::size_t /*slot*/) const { return false; }
  /// Told before `open`, if this rank has nothing in this slot: the content of another rank.
  virtual void expect(std::size_t /*slot*/, int /*content*/) {}
  /// The memory to reduce in place: what accumulated since the last `open` of this pass, times
  /// `factor`, or zeros. Other gradients may accumulate elsewhere until `close`.
  virtual TensorView open(std::size_t slot, double factor) = 0;
  /// In place of `open`, for a gradient that reduces itself; else null.
  virtual std::unique_ptr<OwnReduction> open_own(std::size_t /*slot*/, double /*factor*/,
                                                 const std::string& /*name*/,
                                                 std::int64_t /*number*/) {
    return nullptr;
  }
  /// In place of `open`, on a rank outside the process set: nothing is reduced there.
  virtual void scale(std::size_t /*slot*/, double /*factor*/) {}
  /// The memory of the last `open` was not submitted.
  virtual void cancel(std::size_t /*slot*/) {}
  virtual Future<void> submit(std::size_t /*slot*/, const detail::GroupedAllreduceCall& call) {
    return detail::call_async(call);
  }
  /// The operation of this round of the pass is done with the memory of its `open`. Not told of
  /// every operation before `close`.
  virtual void completed(std::size_t /*slot*/, int /*round*/) {}
  /// All operations of the pass are done. Puts the result in place if `keep`.
  virtual void close(std::size_t /*slot*/, bool /*keep*/) {}
  /// True if a step ends with an operation under the name of the counts. If it meets the counts of
  /// a rank that goes on without a step, that rank submits them again, for the pass of the others
  /// that follows.
  [[nodiscard]] virtual bool ends_steps_together() const { return false; }
  /// Backward has thrown while operations write to opened memory: takes it away from the program,
  /// which does not know of them.
  virtual void detach(std::size_t /*slot*/) {}
};

/// Throws InvalidArgument, naming two gradients, if they share memory: operations that are pending
/// together must not write to the same memory. `use_of(i)`, for `i` below `uses`, says which slot's
/// memory it is.
KOLO_EXPORT void require_disjoint(const char* subject, std::size_t uses,
                                  const std::function<MemoryUse(std::size_t)>& use_of,
                                  const std::function<std::string(std::size_t)>& name_of_slot);

/// Buckets, rounds and passes. A bucket is what one operation reduces: a gradient, or a group of
/// them. A pass ends when all gradients are final. Within a pass, a gradient may accumulate again
/// after its bucket was submitted: the bucket then has a further round.
///
/// The ranks may submit different buckets, and unequal rounds. At the end of a pass they agree on
/// the largest number of rounds of each bucket, and those that have submitted fewer submit zeros.
/// The name of an operation does not depend on the pass, but its number does: a rank that is one
/// pass or one step ahead gets Mismatch.
///
/// Not thread-safe.
class PassReducer {
 public:
  /// `counted`: whether the ranks agree on the rounds. If not, every pass reduces every bucket
  /// once. `storage` must outlive this object.
  KOLO_EXPORT PassReducer(GradientStorage& storage, const DistributedOptimizerOptions& options,
                          bool counted);
  KOLO_EXPORT ~PassReducer();
  PassReducer(const PassReducer&) = delete;
  PassReducer& operator=(const PassReducer&) = delete;

  /// The number of the optimizer, which begins the names of its operations.
  void set_number(std::int64_t number) { number_ = number; }
  [[nodiscard]] std::int64_t number() const { return number_; }

  /// Adds the next slot, to a group or as a bucket of its own.
  KOLO_EXPORT void add(const std::string& name, std::optional<std::size_t> group);
  /// Adds the next slot in the place of another one, which becomes a bucket of its own under
  /// `retired`. To be called between passes.
  KOLO_EXPORT void replace(std::size_t slot, const std::string& retired);
  /// The name of the operation that reduces the slot.
  [[nodiscard]] KOLO_EXPORT std::string operation_of(std::size_t slot) const;
  [[nodiscard]] std::size_t slots() const { return bucket_of_.size(); }

  /// Backward passes of this step that have ended.
  [[nodiscard]] int passes() const { return passes_; }
  /// True in the last of `backward_passes_per_step`, and in every further one.
  [[nodiscard]] bool in_last_pass() const {
    return passes_ + 1 >= options_.backward_passes_per_step;
  }
  /// Drops passes that ended without reduction.
  KOLO_EXPORT void forget_passes();
  /// What was begun and not reduced before ranks joined, or before a session began, belongs to no
  /// step of the other ranks: they completed what was submitted of it. Drops it, and returns what
  /// it was. To be called before anything else in a new pass or step.
  enum class Cut : std::uint8_t { nothing, passes, operations };
  KOLO_EXPORT Cut drop_before_join() noexcept;
  /// A new session has begun: drops all that was begun and not ended, whatever it was.
  KOLO_EXPORT void rejoin() noexcept;
  /// True if gradients are reduced, and none has accumulated since.
  [[nodiscard]] bool is_final() const { return reduced_ && local_passes_ == 0; }
  [[nodiscard]] int local_passes() const { return local_passes_; }
  /// Passes that have reduced, of all steps.
  [[nodiscard]] std::int64_t reductions() const { return reductions_; }
  /// Counts on from here.
  void set_reductions(std::int64_t reductions) { reductions_ = reductions; }

  /// Begins a pass, whose gradients are reduced or stay this rank's. First ends a pass that failed.
  KOLO_EXPORT void begin(bool reducing);
  [[nodiscard]] bool active() const { return active_ && !failed_; }
  [[nodiscard]] bool reducing() const { return reducing_; }
  /// The factor of gradients before they are submitted, and the prescale of operations.
  KOLO_EXPORT void set_scales(double factor, double prescale);

  /// The gradient is complete for now. Submits its bucket if that is complete.
  KOLO_EXPORT void ready(std::size_t slot);
  [[nodiscard]] KOLO_EXPORT bool is_submitted(std::size_t slot) const;
  /// Submits every bucket that was not submitted in this pass.
  KOLO_EXPORT void submit_rest();

  // The end of a pass. If passes of several optimizers end together, each part is to be called for
  // all of them before the next part: the ranks may end them in different orders, and nothing waits
  // for what another rank submits in a later part.
  KOLO_EXPORT void submit_counts() noexcept;  ///< Of a pass that reduces; the first part.
  /// Waits for the counts that were submitted, for at most `timeout`; false if they are not agreed
  /// by then. Ranks without a pass submit the counts of one optimizer after the other.
  [[nodiscard]] KOLO_EXPORT bool counts_arrive_within(
      std::chrono::duration<double> timeout) noexcept;
  KOLO_EXPORT void submit_missing() noexcept;  ///< Waits for the counts.
  /// The parts from number 2 on, until the pass is no longer active: one for each operation of
  /// hooks, and the last waits for all operations.
  KOLO_EXPORT void proceed(int part) noexcept;
  KOLO_EXPORT void finish() noexcept;  ///< All these parts.
  KOLO_EXPORT void rethrow();          ///< Throws the first error of all parts.
  /// All parts. For a pass without reduction, only counts it.
  KOLO_EXPORT void end_pass();

  /// This rank cannot complete the pass. Tells the others, and submits zeros for what they may wait
  /// for. Does not wait: `begin` or `settle` does.
  KOLO_EXPORT void fail_pass() noexcept;
  /// Waits for the operations of a pass that failed on this rank.
  KOLO_EXPORT void settle() noexcept;

  /// Ends the step. A step that is dropped does not end, so that its number tells ranks that
  /// stepped from ranks that did not: `forget_passes` drops it.
  KOLO_EXPORT void end_step();
  [[nodiscard]] StepNumber& step() { return step_; }

 private:
  struct Bucket {
    std::string name;
    bool is_group;
    std::vector<std::size_t> slots;
    std::size_t first_place = 0;  // for hooks; changes with the slots
    int rounds = 0;               // that this rank has submitted in this pass
  };
  struct PendingReduction {
    std::vector<std::size_t> slots{};
    std::size_t bucket = 0;
    int round = 0;
    std::unique_ptr<OwnReduction> own{};
    std::unique_ptr<HookChain> chain{};
    Future<void> future{};
  };

  [[nodiscard]] bool is_complete(const Bucket& bucket) const;
  [[nodiscard]] std::string operation_name(const Bucket& bucket, int round) const;
  [[nodiscard]] static std::string name_in_pass(const Bucket& bucket, int round);
  void submit(Bucket& bucket);
  void submit_group(Bucket& bucket, const std::vector<std::size_t>& slots);
  [[nodiscard]] Future<void> allreduce(std::size_t slot, const std::string& name,
                                       const std::vector<TensorView>& views);
  [[nodiscard]] bool has_hook() const;
  [[nodiscard]] bool is_for_hook(const std::vector<TensorView>& views) const;
  [[nodiscard]] std::unique_ptr<HookChain> begin_chain(const Bucket& bucket,
                                                       const std::vector<std::size_t>& slots,
                                                       const std::vector<TensorView>& views);
  [[nodiscard]] bool reach_hooks(int operations) noexcept;
  [[nodiscard]] int refused(const PendingReduction& pending) const;
  [[nodiscard]] bool knows_failure() const { return counts_agreed_ && counts_[0] > 0; }
  void submit_hook_status() noexcept;
  void take_hook_status() noexcept;
  void note_completed();
  void wait_for(PendingReduction& pending);
  void finish_pending() noexcept;
  void apply_factor(Bucket& bucket);
  void refuse_frozen(Bucket& bucket);
  void fill_counts();
  void call_counts();
  void take_counts();
  void read_counts();
  void attempt(const std::function<void()>& action) noexcept;
  void leave_pass();

  GradientStorage& storage_;
  DistributedOptimizerOptions options_;
  detail::HookClaim claim_;
  bool counted_;
  bool is_member_;
  std::int64_t number_ = 0;
  StepNumber step_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;        // by slot
  std::vector<std::size_t> bucket_of_group_;  // by group; `no_bucket` if it has no slots yet
  std::vector<bool> fresh_;                   // by slot: complete, and not yet submitted
  double factor_ = 1.0;
  double prescale_;
  int passes_ = 0;        // in this step
  int local_passes_ = 0;  // since the last pass that reduced
  bool reduced_ = false;  // a pass of this step reduced
  std::int64_t reductions_ = 0;
  bool active_ = false;
  bool reducing_ = false;
  bool failed_ = false;  // in this pass, on this rank
  bool counts_agreed_ = false;
  // One number for the failure, one for each bucket, one for each slot; with a hook, one more for
  // each bucket: how many operations of its first round a rank has submitted whose backward has
  // thrown.
  std::vector<std::int32_t> counts_;
  std::exception_ptr error_{};
  // After what the operations write to, so destroyed before.
  Future<void> counts_future_{};
  bool counts_submitted_ = false;
  std::int32_t hook_status_ = 0;  // above 0: tells the lowest rank whose hook has thrown
  Future<void> hook_status_future_{};
  bool hook_status_due_ = true;
  std::vector<PendingReduction> pending_;
  std::size_t completed_ = 0;  // the first pending reductions that the storage was told of
};

}  // namespace kolo::internal
