// What user threads have submitted and the driver has not taken yet.
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

#include "base/key.hpp"
#include "session/operation.hpp"

namespace kolo::session {

using OperationPtr = std::shared_ptr<detail::Operation>;

/// Thread-safe. Owns every operation until it is done, and keeps it for the next of the same name.
class OperationQueue {
 public:
  explicit OperationQueue(int rank);

  /// Takes what is submitted, and leaves memory for the next. Throws DuplicateName if the name is
  /// pending in the set on this rank; InvalidArgument if an unnamed operation of another thread is,
  /// since two threads have no common order, and while this rank has joined. Nothing is changed
  /// then. `attended`: somebody will drive until it is done.
  OperationPtr push(Engine& engine, Submission& submission, bool attended);

  /// Replaces `taken` by all that was pushed, in order. Costs little if there is nothing.
  void take(std::vector<detail::Operation*>& taken);

  [[nodiscard]] bool any() const { return any_submitted_.load(std::memory_order_acquire); }
  /// How many so far were left to whoever may drive.
  [[nodiscard]] std::uint64_t unattended() const {
    return unattended_.load(std::memory_order_relaxed);
  }

  /// By the driver, before it finishes them: what depends on their number may be submitted again.
  /// A name may once its operation is done.
  void release(std::span<detail::Operation* const> operations);

  /// Nothing more will be submitted. Forgets what is done, which holds on to the engine.
  void close();

 private:
  struct Known {
    OperationPtr operation{};   // the last
    Known* follower = nullptr;  // what was submitted after it the last time
  };

  struct Unnamed {
    std::uint64_t next = 0;
    int pending = 0;
    std::thread::id thread{};
    std::deque<OperationPtr> operations{};  // all that are pending; the oldest first
  };

  using Lock = std::unique_lock<std::mutex>;

  void release(const detail::Operation& operation);
  Known& known(const Submission& submission);
  void forget_if_many();
  OperationPtr next_named(Engine& engine, const Submission& submission, Lock& lock);
  OperationPtr next_reserved(Engine& engine, const Submission& submission, Lock& lock);
  OperationPtr next_unnamed(Engine& engine, const Submission& submission, Lock& lock);
  void refuse_if_pending(const Known& known, const Submission& submission, Lock& lock) const;
  /// Unlocks before it throws: of an exception that nobody catches the stack is not unwound, and
  /// this rank's departure is announced all the same.
  template <typename E>
  [[noreturn]] void refuse(Lock& lock, const Submission& submission,
                           const std::string& message) const;

  int rank_;
  std::mutex mutex_;
  std::vector<detail::Operation*> submitted_;
  std::atomic<bool> any_submitted_{false};
  std::atomic<std::uint64_t> unattended_{0};
  // By name, or by the number of a join or a change of process sets. Those that are not pending are
  // kept while there are not too many, since most come again.
  std::unordered_map<Key, Known, KeyHash> known_;
  std::size_t most_known_;
  Known* last_ = nullptr;  // submitted
  std::unordered_map<SetId, Unnamed> unnamed_;
  bool joined_ = false;
};

}  // namespace kolo::session
