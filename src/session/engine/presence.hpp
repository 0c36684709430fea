// SPDX-License-Identifier: Apache-2.0
// Whether this rank's threads are in Kolo or elsewhere.
#pragma once

#include <atomic>
#include <memory>

namespace kolo::internal::session {

/// Thread-safe. All accesses are relaxed: a count publishes nothing but itself, and each is changed
/// and read by atomic operations. What is read may be out of date; a rank counts as blocked only
/// after several checks in a row with the same result, a tenth of a second apart.
class Presence {
 public:
  /// The calling thread submits something. It counts as one that does until it ends. In exit
  /// handlers and destructors of static objects, which run after the mark is destroyed, it counts
  /// no more.
  void submits() {
    thread_local bool ended = false;  // needs no destructor, so it is valid to the last
    thread_local Mark mark(ended);
    if (!ended && mark.counted != submitters_) mark.count(submitters_);
  }

  /// The calling thread waits in Kolo while this lives; `for_good`: however long it takes.
  class Waiting {
   public:
    Waiting(Presence& presence, bool for_good) : presence_(presence), for_good_(for_good ? 1 : 0) {
      presence_.waiting_.fetch_add(1, std::memory_order_relaxed);
      presence_.for_good_.fetch_add(for_good_, std::memory_order_relaxed);
    }
    ~Waiting() {
      presence_.waiting_.fetch_sub(1, std::memory_order_relaxed);
      presence_.for_good_.fetch_sub(for_good_, std::memory_order_relaxed);
    }
    Waiting& operator=(Waiting&&) = delete;

   private:
    Presence& presence_;
    int for_good_;
  };

  [[nodiscard]] bool any_waits() const { return waiting_.load(std::memory_order_relaxed) > 0; }
  /// All threads that ever submitted wait without a deadline, as far as can be seen. A thread that
  /// waits without having submitted may stand for one that has.
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

  // Shared with the threads: their marks give it back when they end, which may be after the
  // session.
  std::shared_ptr<Count> submitters_ = std::make_shared<Count>(0);
  std::atomic<int> waiting_{0};
  std::atomic<int> for_good_{0};
};

}  // namespace kolo::internal::session
