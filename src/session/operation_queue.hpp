// What user threads have submitted and the driver has not taken yet.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "negotiation/key.hpp"
#include "session/operation.hpp"

namespace kolo::session {

using OperationPtr = std::shared_ptr<detail::Operation>;

/// Thread-safe.
class OperationQueue {
 public:
  explicit OperationQueue(int rank) : rank_(rank) {}

  /// Throws DuplicateName if the name is pending in the set on this rank; InvalidArgument if an
  /// unnamed operation of another thread is, since two threads have no common order, and while this
  /// rank has joined. Nothing is changed then.
  OperationPtr push(std::shared_ptr<Engine> engine, Submission submission);

  /// All that was pushed, in order. Costs little if there is nothing.
  std::vector<OperationPtr> take();

  /// The operations are answered: their names may be used again.
  void release(std::span<const OperationPtr> operations);

 private:
  struct Unnamed {
    std::uint64_t next = 0;
    int pending = 0;
    std::thread::id thread{};
  };

  using Lock = std::unique_lock<std::mutex>;

  void release(const detail::Operation& operation);
  negotiation::Key make_key(const Submission& submission, Lock& lock);
  negotiation::Key number(const Submission& submission, Lock& lock);
  /// Unlocks before it throws: of an exception that nobody catches the stack is not unwound, and
  /// this rank's departure is announced all the same.
  template <typename E>
  [[noreturn]] void refuse(Lock& lock, const Submission& submission,
                           const std::string& message) const;

  int rank_;
  std::mutex mutex_;
  std::vector<OperationPtr> submitted_;
  std::atomic<bool> any_submitted_{false};
  // Those that are pending, but for the numbered. Names that were used are kept while there are not
  // too many, since most come again.
  std::unordered_map<negotiation::Key, bool, negotiation::KeyHash> pending_;
  std::unordered_map<negotiation::SetId, Unnamed> unnamed_;
  bool joined_ = false;
};

}  // namespace kolo::session
