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
/// whether it has thrown. Does nothing without a hook.
class PassHooks {
 public:
  /// Throws InvalidArgument if another optimizer uses the hook.
  PassHooks(std::shared_ptr<CommunicationHook> hook, ProcessSet set);

  /// False outside the process set, and with one rank: then nothing is sent.
  [[nodiscard]] bool are_used() const;
  /// Whether the hook reduces these tensors.
  [[nodiscard]] bool handle(const std::vector<TensorView>& views) const;

  /// Starts the hook for a round of a bucket, the one with this index. `refuses`: this rank cannot
  /// take part in the pass. The chain lives until `close`. Throws if nothing can be submitted.
  const HookChain& begin(std::size_t bucket, int round, HookChain::Calls calls,
                         GradientBucket tensors, bool refuses);
  /// Runs the stages that need not wait.
  void poll() noexcept;
  /// Runs no further stage, and makes the other ranks' stages fail.
  void abort() noexcept;
  /// Submits nothing any more.
  void drop() noexcept;

  /// Fills in `PassSummary::refused` on a rank whose backward has thrown.
  void count_refused(std::span<std::int32_t> refused) const;
  /// Waits until every chain has submitted this many operations or has ended. Returns whether any
  /// has submitted so many, which is the same on all ranks. `refused`: as agreed; else empty.
  [[nodiscard]] bool reach(int operations, std::span<const std::int32_t> refused) noexcept;

  /// Begins the status of the pass. False if it has begun already.
  [[nodiscard]] bool begin_status();
  [[nodiscard]] bool has_begun_status() const { return has_begun_status_; }
  /// Submits an allreduce that tells whether the hook has thrown. `failed`: this rank's pass has.
  void submit_status(const std::string& name, std::int64_t step, bool failed);
  /// Waits for the status, if it was submitted. Throws HookFailed if the hook has thrown on a rank.
  void take_status();
  /// Ends the pass.
  void close();

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
  bool has_begun_status_ = false;
  std::int32_t status_ = 0;  // the mark of a rank whose hook has thrown
  Future<void> status_future_{};
};

}  // namespace kolo::internal
