// SPDX-License-Identifier: Apache-2.0
// Counts the threads of this rank that submit operations, and those that wait in Kolo.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>

namespace kolo::internal::session {

/// Shows whether a rank is blocked, with all of its threads waiting in Kolo. Thread-safe. All
/// accesses are relaxed, because no other data depends on the counts. A count may be out of date
/// when it is read; a rank counts as blocked only after several checks in a row with the same
/// result, a tenth of a second apart.
class Presence {
 public:
  /// True while the calling thread submits for another one (`detail::SubmitsFor`).
  [[nodiscard]] static bool& submits_for_another() {
    thread_local bool value = false;
    return value;
  }
  /// Counts the calling thread as a submitter until it ends, unless it submits for another one.
  /// Exit handlers and destructors of static objects may still submit after the thread's mark is
  /// destroyed; the thread is not counted then.
  void submits() {
    if (submits_for_another()) return;
    thread_local bool ended = false;  // has no destructor, so it outlives the mark
    thread_local Mark mark(ended);
    if (!ended && mark.counted != submitters_) mark.count(submitters_);
  }

  /// Counts the calling thread as waiting while the object lives. `for_good`: without a deadline.
  class Waiting {
   public:
    Waiting(Presence& presence, bool for_good) : presence_(presence), for_good_(for_good ? 1 : 0) {
      presence_.waiting_.fetch_add(1, std::memory_order_relaxed);
      presence_.for_good_.fetch_add(for_good_, std::memory_order_relaxed);
    }
    ~Waiting() {
      presence_.waiting_.fetch_sub(1, std::memory_order_relaxed);
      presence_.for_good_.fetch_sub(for_good_, std::memory_order_relaxed);
      presence_.resumed_.store(std::chrono::steady_clock::now(), std::memory_order_relaxed);
    }
    Waiting& operator=(Waiting&&) = delete;

   private:
    Presence& presence_;
    int for_good_;
  };

  /// The time at which a thread last left a wait.
  [[nodiscard]] std::chrono::steady_clock::time_point resumed() const {
    return resumed_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool any_waits() const { return waiting_.load(std::memory_order_relaxed) > 0; }
  /// True if as many threads wait without a deadline as have ever submitted. An approximation: a
  /// waiting thread that never submitted may hide a submitter that does not wait.
  [[nodiscard]] bool all_wait() const {
    const int submitters = submitters_->load(std::memory_order_relaxed);
    return submitters > 0 && for_good_.load(std::memory_order_relaxed) >= submitters;
  }

 private:
  using Count = std::atomic<int>;
  struct Mark {
    std::shared_ptr<Count> counted{};
    bool& ended;

    explicit Mark(bool& flag) : ended(flag) {}
    ~Mark() {
      count(nullptr);
      ended = true;
    }
    Mark& operator=(Mark&&) = delete;
    void count(const std::shared_ptr<Count>& at) {
      if (counted) counted->fetch_sub(1, std::memory_order_relaxed);
      counted = at;
      if (counted) counted->fetch_add(1, std::memory_order_relaxed);
    }
  };

  // Shared with the marks, because a thread may end, and decrement the count, after the session.
  std::shared_ptr<Count> submitters_ = std::make_shared<Count>(0);
  std::atomic<int> waiting_{0};
  std::atomic<int> for_good_{0};
  std::atomic<std::chrono::steady_clock::time_point> resumed_{};
};

}  // namespace kolo::internal::session
