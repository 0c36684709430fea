// SPDX-License-Identifier: Apache-2.0
// The way of operations from the threads of users to the driver, and the names they are known by.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "session/engine/operation.hpp"

namespace kolo::internal::session {

using OperationPtr = std::shared_ptr<detail::Operation>;

/// Thread-safe. Owns every operation until it is done, so that the driver can hold plain pointers,
/// and keeps it for the next submission under the same name.
class OperationQueue {
 public:
  explicit OperationQueue(int rank);

  /// Takes the submission, and leaves memory for the next one in it. Throws DuplicateName if the
  /// name is pending in the set on this rank; InvalidArgument if an unnamed operation of another
  /// thread is pending, since two threads have no common order, and while this rank has joined.
  /// Nothing is changed then. `attended`: its thread will drive until it is done.
  OperationPtr push(Engine& engine, Submission& submission, bool attended);

  /// As `push`, if the submission repeats the one that followed the last one before: then nothing
  /// needs to be checked, copied or looked up. Else null, and nothing is changed.
  OperationPtr push_again(const Repetition& repetition, bool attended);

  /// Replaces `taken` by all that was pushed since, in order. Takes no lock if there is nothing.
  void take(std::vector<detail::Operation*>& taken);

  /// A hint, read without the lock. A driver that misses the latest submission is rung for it.
  [[nodiscard]] bool any() const { return any_submitted_.load(std::memory_order_acquire); }
  /// How many so far were left to the driver. A hint that shows bursts.
  [[nodiscard]] std::uint64_t unattended() const {
    return unattended_.load(std::memory_order_relaxed);
  }

  /// Like `unattended`, but exact, because it takes the lock: a later submission sees what the
  /// caller wrote before this call, and the caller's next `any` sees every earlier one.
  [[nodiscard]] std::uint64_t settled_unattended();

  /// By the driver, before it finishes them: a thread that then learns that its operation is done
  /// may at once submit another without a name, or after a join. A name is free again as soon as
  /// its operation is done, without this. `failed`: they end with an error.
  void release(std::span<detail::Operation* const> operations, bool failed = false);

  /// From now on `push` throws ShutDown. Returns what was pushed and not taken, to be finished.
  [[nodiscard]] std::vector<detail::Operation*> close();

 private:
  /// What is known under one name. Training loops submit the same names in the same order, so the
  /// next submission is most likely that of `follower`: one comparison instead of a lookup.
  struct Known {
    OperationPtr operation{};   // the last of this name
    Known* follower = nullptr;  // what was submitted after it the last time
  };

  /// The operations without a name in one set.
  struct Unnamed {
    std::uint64_t next = 0;                 // the number of the next one
    int pending = 0;                        // submitted and not yet released
    std::thread::id thread{};               // that submitted the pending ones
    std::deque<OperationPtr> operations{};  // the oldest first; done ones wait to be reused
    bool removed = false;                   // the set
  };

  using Lock = std::unique_lock<std::mutex>;

  /// What has begun goes to the driver.
  void append(detail::Operation& operation, bool attended);
  void release(const detail::Operation& operation, bool failed);
  void forget_removed(SetId set);
  Known& known(const Submission& submission);
  void forget_if_many();
  void forget_done();
  OperationPtr next_known(Engine& engine, const Submission& submission, Lock& lock);
  OperationPtr next_unnamed(Engine& engine, const Submission& submission, Lock& lock);
  /// Unlocks before it throws. If the exception is not caught, no destructor runs, and the
  /// terminate handler, which still announces that this rank leaves, would wait for the lock.
  template <typename E>
  [[noreturn]] void refuse(Lock& lock, const Submission& submission,
                           const std::string& message) const;

  int rank_;
  std::mutex mutex_;                           // of all that follows
  std::vector<detail::Operation*> submitted_;  // and not yet taken
  std::atomic<bool> any_submitted_{false};     // written under the lock, read without
  std::atomic<std::uint64_t> unattended_{0};   // written under the lock, read without
  std::uint64_t versions_ = 0;                 // of operations
  // By name, or by the number of a join or a change of process sets. Those that are not pending are
  // kept while there are not too many, since most are submitted again. Pointers to elements stay
  // valid: they are erased only together with all `follower`s and `last_`.
  std::unordered_map<Key, Known, KeyHash> known_;
  std::size_t max_known_;
  Known* last_ = nullptr;  // submitted last
  std::unordered_map<SetId, Unnamed> unnamed_;
  bool joined_ = false;  // and not all ranks have
  bool closed_ = false;
};

}  // namespace kolo::internal::session
