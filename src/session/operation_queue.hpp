// What user threads have submitted and the driver has not taken yet.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>
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

  /// All that was pushed, in order.
  std::vector<OperationPtr> take();

  /// The operation is answered: its name may be used again.
  void release(const detail::Operation& operation);

 private:
  struct Unnamed {
    std::uint64_t next = 0;
    int pending = 0;
    std::thread::id thread{};
  };

  using Lock = std::unique_lock<std::mutex>;

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
  std::unordered_set<negotiation::Key, negotiation::KeyHash> pending_;  // but for the numbered
  std::unordered_map<negotiation::SetId, Unnamed> unnamed_;
  bool joined_ = false;
};

}  // namespace kolo::session
