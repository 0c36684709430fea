// SPDX-License-Identifier: Apache-2.0
// One reduction by a communication hook: stages, one after another.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kolo/communication_hook.hpp"
#include "kolo/export.hpp"

namespace kolo::detail {

/// Holds the hook for one optimizer. Throws InvalidArgument if another has it.
class HookClaim {
 public:
  explicit HookClaim(std::shared_ptr<CommunicationHook> hook);
  ~HookClaim();
  HookClaim(const HookClaim&) = delete;
  HookClaim& operator=(const HookClaim&) = delete;

 private:
  std::shared_ptr<CommunicationHook> hook_;
};

}  // namespace kolo::detail

namespace kolo::internal {

/// Thrown by a stage, on all ranks alike: the bucket needs an allreduce after all, because a rank
/// has joined between two operations.
class NeedsAllreduce {};

/// The ranks number the operations of a reduction from 1, in the order of the stages. A rank whose
/// stage throws submits, under the number of the operation that the others submit or will submit
/// next, one that matches no hook's. Then all ranks get Mismatch there, and none waits for ever.
///
/// If an operation is undefined without the ranks that have joined, all others get the same
/// Mismatch, and the allreduce of the whole bucket takes the next number.
///
/// No function throws, except `start`. Not thread-safe.
class HookChain {
 public:
  struct Calls {
    std::string bucket;  // for messages
    int rank = 0;        // this one, in the world
    ProcessSet process_set{};
    std::function<std::string(int)> name_of;  // an operation, by its number
    std::function<void()> check;              // throws if nothing may be submitted any more
    std::function<Future<void>(const std::string&)> allreduce;  // of the bucket, under this name
  };

  explicit HookChain(Calls calls) : calls_(std::move(calls)) {}

  /// Runs the first stages, up to the first operation. Throws if nothing can be submitted.
  void start(CommunicationHook& hook, GradientBucket bucket);
  /// In place of `start`, on a rank that cannot take part in the pass. Throws as `start`.
  void refuse() { submit_refusal(); }

  /// Runs the stages that need not wait.
  void poll() noexcept;
  /// Waits, until this many operations were submitted or the chain has ended.
  void reach(int operations) noexcept;
  /// Runs no further stage; the other ranks' fail.
  void abort() noexcept;
  /// Submits a refusal if the chain has ended before this operation, which another rank refused: it
  /// had an operation more than the rank that refused first.
  void close(int operation) noexcept;
  /// Submits nothing any more.
  void drop() noexcept { next_ = stages_.size(); }

  /// How many operations were submitted: of an ended chain, the same on all ranks.
  [[nodiscard]] int operations() const noexcept { return operations_; }
  [[nodiscard]] bool ended() const noexcept { return pending_.empty() && next_ == stages_.size(); }
  [[nodiscard]] const std::string& bucket() const noexcept { return calls_.bucket; }
  /// What the hook has thrown on this rank: its message. Empty if it has not.
  [[nodiscard]] const std::string& thrown() const noexcept { return thrown_; }
  /// The error of an operation, which all ranks get.
  [[nodiscard]] const std::exception_ptr& error() const noexcept { return error_; }

 private:
  void run_stages() noexcept;
  void take_answers() noexcept;
  void turn_to_allreduce() noexcept;
  void fail() noexcept;
  void submit_refusal();
  [[nodiscard]] bool submits_more() const noexcept;

  Calls calls_;
  std::vector<HookStages::Stage> stages_;  // they own the memory of their operations
  std::size_t next_ = 0;
  int operations_ = 0;  // submitted
  bool refused_ = false;
  std::string thrown_;
  std::exception_ptr error_{};
  // Usually one; two after `abort`. Last, so that their memory outlives them.
  std::vector<std::shared_ptr<detail::FutureBase>> pending_{};
};

}  // namespace kolo::internal
