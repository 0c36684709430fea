// SPDX-License-Identifier: Apache-2.0
// The communication hook of one optimizer, in the passes that PassReducer reduces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/communication_hook.hpp"
#include "training/hooks/hook_chain.hpp"

namespace kolo::internal {

/// Runs the hook for the buckets of a pass, and tells the other ranks at the end of the pass
/// whether the hook has thrown. Does nothing without a hook.
class PassHooks {
 public:
  /// Throws InvalidArgument if another optimizer uses the hook.
  PassHooks(std::shared_ptr<CommunicationHook> hook, ProcessSet set);

  /// True if there is a hook, and other ranks to communicate with: false outside the process set,
  /// and in a set of one rank.
  [[nodiscard]] bool are_used() const;
  /// True if the hook reduces these tensors.
  [[nodiscard]] bool handle(const std::vector<TensorView>& views) const;

  /// Starts the hook for a round of the bucket with this index. With `refuses`, this rank cannot
  /// take part in the pass and submits a refusal instead. The chain lives until `close`. Throws if
  /// nothing can be submitted.
  const HookChain& begin(std::size_t bucket, int round, HookChain::Calls calls,
                         GradientBucket tensors, bool refuses);
  /// Runs further stages of each chain for as long as no pending operation makes them wait.
  void poll() noexcept;
  /// Runs no further stage, and makes the other ranks' stages fail.
  void abort() noexcept;
  /// Drops the stages that are left, so that nothing more is submitted.
  void drop() noexcept;

  /// Fills in `PassSummary::refused` on a rank whose backward has thrown.
  void count_refused(std::span<std::int32_t> refused) const;
  /// The operation that `reach` waits for next; null if it need not wait for what was submitted so
  /// far.
  [[nodiscard]] const detail::FutureBase* awaited(int operations) const;
  /// Waits until every chain has submitted this many operations or has ended. Returns true, on all
  /// ranks alike, if any chain has submitted so many. `refused` is `PassSummary::refused` if the
  /// summary is agreed, otherwise empty.
  [[nodiscard]] bool reach(int operations, std::span<const std::int32_t> refused) noexcept;

  /// Marks that the agreement on the hook's status has begun. Returns false if it had before.
  [[nodiscard]] bool begin_status();
  /// Submits an allreduce that tells all ranks whether the hook has thrown on any. `failed` is true
  /// if the pass has failed on this rank for another reason.
  void submit_status(const std::string& name, std::int64_t step, bool failed);
  /// Waits for the status, if it was submitted. Throws HookFailed if the hook has thrown on a rank.
  void take_status();
  /// Ends the pass: destroys the chains.
  void close();
  /// Waits for the answers to refusals of an earlier pass, before a pass uses their names again.
  void settle() noexcept;

 private:
  struct Entry {
    std::size_t bucket;
    int round;
    std::unique_ptr<HookChain> chain;
  };

  [[nodiscard]] const HookChain* first_thrown() const;

  std::shared_ptr<CommunicationHook> hook_;
  detail::HookClaim claim_;
  ProcessSet set_;
  bool is_member_;
  std::vector<Entry> chains_{};
  std::vector<std::shared_ptr<detail::FutureBase>> unanswered_{};  // of earlier passes
  bool has_begun_status_ = false;
  std::int32_t status_ = 0;  // the mark of a rank whose hook has thrown
  Future<void> status_future_{};
};

}  // namespace kolo::internal
