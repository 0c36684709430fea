// What user threads have submitted and the driver has not taken yet.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
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

  /// Throws DuplicateName if the name is pending on this rank, InvalidArgument if an unnamed
  /// operation of another thread is: two threads have no common order. Nothing is changed then.
  OperationPtr push(std::shared_ptr<Engine> engine, const std::string& name, Descriptor descriptor,
                    backend::Member member);

  /// All that was pushed, in order.
  std::vector<OperationPtr> take();

  /// The operation is answered: its name may be used again.
  void release(const detail::Operation& operation);

 private:
  int rank_;
  std::mutex mutex_;
  std::vector<OperationPtr> submitted_;
  std::unordered_set<std::string> names_;
  std::uint64_t next_unnamed_ = 0;
  int unnamed_pending_ = 0;
  std::thread::id unnamed_thread_;
};

}  // namespace kolo::session
