// SPDX-License-Identifier: Apache-2.0
// The queue of operations from the user's threads to the driver, and the table of their names.
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

/// How the driver comes to know of a submission.
enum class Notice : std::uint8_t {
  rung,      // the submitting thread rings
  attended,  // the submitting thread drives until the operation is done
  gathered,  // `show_gathered` shows it, or a submission of another kind
};

/// Thread-safe. Owns every operation until it is done, so that the driver can hold plain pointers,
/// and keeps most for the next submission under the same name.
class OperationQueue {
 public:
  explicit OperationQueue(int rank);

  /// Queues the submission, whose memory it swaps for memory of an earlier one. Throws
  /// DuplicateName if the name is pending in the set on this rank; InvalidArgument while this rank
  /// has joined, and if an unnamed operation of another thread is pending, since the threads' order
  /// may differ from that on other ranks. An exception changes nothing.
  OperationPtr push(Engine& engine, Submission& submission, Notice notice);

  /// As `push`, for a submission that repeats the operation that followed the last one in the
  /// previous step: nothing is checked, copied or looked up. Otherwise returns null and changes
  /// nothing.
  OperationPtr push_again(const Repetition& repetition, Notice notice);
  /// True if `push_again` would accept it now.
  [[nodiscard]] bool expects(const Repetition& repetition);

  /// Lets the driver find the operations that are `gathered`. Returns false if there are none.
  bool show_gathered();

  /// Replaces `taken` by the operations pushed since the last call, in order. Takes no lock if
  /// there are none.
  void take(std::vector<detail::Operation*>& taken);

  /// True if operations wait in the queue. A hint, read without the lock: a driver that misses the
  /// latest submission is woken by its ring.
  [[nodiscard]] bool any() const { return any_submitted_.load(std::memory_order_acquire); }
  /// The number of submissions so far that were `rung`. A hint that shows bursts.
  [[nodiscard]] std::uint64_t unattended() const {
    return unattended_.load(std::memory_order_relaxed);
  }

  /// Like `unattended`, but exact, because it takes the lock: a later submission sees what the
  /// caller wrote before this call, and the caller's next `any` sees every earlier one.
  [[nodiscard]] std::uint64_t settled_unattended();

  /// Called by the driver before it finishes `operations`. A thread that sees its operation done
  /// may at once submit another one without a name, or one after a join, so the queue must know of
  /// the end first. Named operations need no call: their names are free once they are done.
  /// `failed`: they end with an error.
  void release(std::span<detail::Operation* const> operations, bool failed = false);

  /// From now on `push` throws ShutDown. Returns the operations that the driver has not taken; the
  /// caller must finish them.
  [[nodiscard]] std::vector<detail::Operation*> close();

 private:
  /// The entry of one name. Training loops submit the same names in the same order, so the next
  /// submission most likely has the name of `follower`: one comparison replaces a lookup.
  struct Known {
    OperationPtr operation{};   // the last one of this name; null once it is dropped
    Known* follower = nullptr;  // the name that was submitted next the last time
    bool is_new = true;         // its operation was not used again, and may be dropped
  };

  /// The operations without a name in one set.
  struct Unnamed {
    std::uint64_t next = 0;                 // the number of the next operation
    int pending = 0;                        // operations submitted and not yet released
    std::thread::id thread{};               // the thread that submitted the pending operations
    std::deque<OperationPtr> operations{};  // the oldest first; done ones wait to be reused
    bool removed = false;                   // the process set was removed
  };

  using Lock = std::unique_lock<std::mutex>;

  /// Queues an operation that has begun.
  void append(detail::Operation& operation, Notice notice);
  void release(const detail::Operation& operation, bool failed);
  void forget_removed(SetId set);
  [[nodiscard]] Known* find_repeated(const Repetition& repetition);
  Known& known(const Submission& submission);
  void forget_if_many();
  void forget_done();
  void drop_new();
  OperationPtr next_known(Engine& engine, const Submission& submission, Lock& lock);
  OperationPtr next_unnamed(Engine& engine, const Submission& submission, Lock& lock);
  /// Unlocks, then throws an E. If no handler catches the exception, no destructor runs, and the
  /// terminate handler, which announces that this rank leaves, would wait for the lock forever.
  template <typename E>
  [[noreturn]] void refuse(Lock& lock, const Submission& submission,
                           const std::string& message) const;

  int rank_;
  std::mutex mutex_;                           // guards the members below
  std::vector<detail::Operation*> submitted_;  // not yet taken by the driver
  std::atomic<bool> any_submitted_{false};     // written under the lock, read without
  std::atomic<std::uint64_t> unattended_{0};   // written under the lock, read without
  std::uint64_t versions_ = 0;                 // the last number that `push` gave out
  // Operations by name, or by the number of a join or a change of process sets. Done operations are
  // kept up to a limit, because most are submitted again. `follower`, `last_` and `new_` point to
  // elements; whenever elements are erased, all of these pointers are reset.
  std::unordered_map<Key, Known, KeyHash> known_;
  std::size_t max_known_;
  // Names added since elements were last erased, until they are used again or their operations are
  // dropped. A name that is used once, such as one with the number of a step, keeps no operation,
  // which takes more memory than all else about a name.
  std::vector<Known*> new_;
  std::size_t max_new_;
  Known* last_ = nullptr;  // the entry of the last named submission
  std::unordered_map<SetId, Unnamed> unnamed_;
  bool joined_ = false;  // from this rank's join until all ranks have joined
  bool closed_ = false;
};

}  // namespace kolo::internal::session
