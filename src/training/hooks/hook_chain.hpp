// SPDX-License-Identifier: Apache-2.0
// The chain of stages by which a communication hook reduces a bucket once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kolo/communication_hook.hpp"
#include "kolo/export.hpp"

namespace kolo::detail {

/// Reserves the hook for one optimizer. Throws InvalidArgument if another optimizer has it.
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

/// Runs the stages of one reduction. The ranks number its operations from 1, in the order of the
/// stages. A rank whose stage throws submits a refusal: an operation that no hook's operation
/// matches, under the number that the other ranks use next. All ranks then get Mismatch for that
/// operation, and no rank waits forever.
///
/// If several ranks give up their passes, they may refuse different operations. The first of these
/// ends the chain everywhere. The ranks that have refused it answer the refusals behind it, but not
/// before they know of them. So nothing in a pass waits for the answers to `refuse`, `abort` and
/// `close`: `take_unanswered` hands them over.
///
/// If ranks have joined and an operation is undefined without them, all other ranks get the same
/// Mismatch. They then reduce the whole bucket by an allreduce, under the next number.
///
/// No function throws, except `start` and `refuse`. Not thread-safe.
class HookChain {
 public:
  /// A step that no program can give. An operation with it matches none of another rank, so all
  /// ranks get Mismatch.
  static constexpr std::int64_t no_step = -1;

  struct Calls {
    std::string bucket;  // for messages
    int rank = 0;        // this rank, in the world
    ProcessSet process_set{};
    std::function<std::string(int)> name_of;  // names an operation by its number
    std::function<void()> check;              // throws if nothing may be submitted any more
    std::function<Future<void>(const std::string&)> allreduce;  // reduces the bucket by this name
  };

  explicit HookChain(Calls calls) : calls_(std::move(calls)) {}

  /// Runs the first stages, up to the first operation. Throws if nothing can be submitted.
  void start(CommunicationHook& hook, GradientBucket bucket);
  /// Replaces `start` on a rank that cannot take part in the pass: submits a refusal. Throws if
  /// nothing can be submitted.
  void refuse() { submit_refusal(unanswered_); }

  /// Runs further stages for as long as no pending operation makes them wait.
  void poll() noexcept;
  /// Waits until this many operations were submitted or the chain has ended.
  void reach(int operations) noexcept;
  /// The operation that `reach` waits for next; null if there is none, or all have answers.
  [[nodiscard]] const detail::FutureBase* awaited(int operations) const noexcept;
  /// Runs no further stage, and submits a refusal, so that the stages of the other ranks fail.
  void abort() noexcept;
  /// The refusals that have no answer yet. The names of a pass with the same hook can be used again
  /// once they have.
  [[nodiscard]] std::vector<std::shared_ptr<detail::FutureBase>> take_unanswered() noexcept;
  /// Answers a refusal that another rank has submitted under this number. If an earlier refusal has
  /// ended the chain on this rank, nothing else would match it, and that rank would wait forever.
  void close(int operation) noexcept;
  /// Drops the stages that are left, so that nothing more is submitted.
  void drop() noexcept { next_ = stages_.size(); }

  /// The number of submitted operations, which is equal on all ranks once the chain has ended.
  [[nodiscard]] int operations() const noexcept { return operations_; }
  [[nodiscard]] bool ended() const noexcept { return pending_.empty() && next_ == stages_.size(); }
  [[nodiscard]] const std::string& bucket() const noexcept { return calls_.bucket; }
  /// The message of the exception that the hook has thrown on this rank; empty if there is none.
  [[nodiscard]] const std::string& thrown() const noexcept { return thrown_; }
  /// The error of an operation, which all ranks get.
  [[nodiscard]] const std::exception_ptr& error() const noexcept { return error_; }

 private:
  void run_stages() noexcept;
  void take_answers() noexcept;
  void turn_to_allreduce() noexcept;
  void fail() noexcept;
  void submit_refusal(std::vector<std::shared_ptr<detail::FutureBase>>& to);
  [[nodiscard]] bool submits_more() const noexcept;

  Calls calls_;
  std::vector<HookStages::Stage> stages_;  // each owns the memory of its operation
  std::size_t next_ = 0;
  int operations_ = 0;  // the number of submitted operations
  bool refused_ = false;
  std::string thrown_;
  std::exception_ptr error_{};
  std::vector<std::shared_ptr<detail::FutureBase>> unanswered_{};  // each owns its memory
  // Declared last, so that the futures are destroyed before the stages, which own the memory of the
  // operations.
  std::vector<std::shared_ptr<detail::FutureBase>> pending_{};
};

}  // namespace kolo::internal
