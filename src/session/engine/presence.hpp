// SPDX-License-Identifier: Apache-2.0
// Counts the threads of this rank that submit operations, and those that wait in Kolo.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

namespace kolo::internal::session {

/// Shows whether a rank is blocked, with all of its threads waiting in Kolo. Thread-safe. All
/// accesses but those of `waited` are relaxed, because no other data depends on the counts. A count
/// may be out of date when it is read; a rank counts as blocked only after several checks in a row
/// with the same result, a tenth of a second apart.
class Presence {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;

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
      if (!presence_.any_waits()) presence_.began_.store(Clock::now(), std::memory_order_relaxed);
      // Release, for the acquire in `waited`: the time above is that of this wait.
      presence_.waiting_.fetch_add(1, std::memory_order_release);
      presence_.for_good_.fetch_add(for_good_, std::memory_order_relaxed);
    }
    ~Waiting() {
      const TimePoint began = presence_.began_.load(std::memory_order_relaxed);
      if (presence_.waiting_.fetch_sub(1, std::memory_order_relaxed) == 1)
        presence_.waited_.fetch_add((Clock::now() - began).count(), std::memory_order_relaxed);
      presence_.for_good_.fetch_sub(for_good_, std::memory_order_relaxed);
    }
    Waiting& operator=(Waiting&&) = delete;

   private:
    Presence& presence_;
    int for_good_;
  };

  /// The time in which a thread waited, until `now`. If threads begin and end their waits at once,
  /// an approximation.
  [[nodiscard]] std::chrono::nanoseconds waited(TimePoint now) const {
    const std::chrono::nanoseconds before(waited_.load(std::memory_order_relaxed));
    if (waiting_.load(std::memory_order_acquire) == 0) return before;
    return before + std::max(now - began_.load(std::memory_order_relaxed), Clock::duration(0));
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
  std::atomic<TimePoint> began_{};       // of the wait of the first thread that waits
  std::atomic<std::int64_t> waited_{0};  // nanoseconds of waits that are over
};

}  // namespace kolo::internal::session
