// SPDX-License-Identifier: Apache-2.0
// The choice of the driver, its sleep, and its wake-up.
//
// No wake-up may be missed. A thread that has work for the driver stores it, then rings. The driver
// stores that it listens, makes progress once more, and sleeps only if nothing moved. Both sides
// have a sequentially consistent fence between their two steps (node/doorbell.hpp), so either the
// driver sees the work or the other thread sees the listener.
#include <algorithm>
#include <utility>

#include "base/finally.hpp"
#include "kolo/error.hpp"
#include "session/engine/engine.hpp"

namespace kolo::internal::session {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// How long after the last progress a waiting driver yields before it sleeps. The next message of a
// running operation usually comes sooner than a sleeping thread would wake.
constexpr nanoseconds patience = microseconds(100);

// Submissions that follow each other within this time are collected without a ring for each. A ring
// costs more than a submission.
constexpr nanoseconds gathering = microseconds(50);

// After a burst of this many submissions, another burst is likely. The thread of the program that
// waits for it then drives, and finds the whole burst. If the session's own thread drove meanwhile,
// it would only take the processor from that thread.
constexpr std::uint64_t burst = 16;
constexpr nanoseconds gathering_burst = microseconds(500);

// The pauses of a driver that polls because messages do not ring. Polling without pauses, as MPI's
// own wait functions do, would use a whole core.
constexpr nanoseconds shortest_pause = microseconds(50);
constexpr nanoseconds max_pause = milliseconds(1);  // while an answer is awaited
constexpr nanoseconds idle_pause = milliseconds(5);
// The time after the last progress in which more messages are likely, including those that this
// rank only forwards. Until it has passed, the driver does not pause for `idle_pause`.
constexpr nanoseconds lively = milliseconds(50);
// The value of `patience` while a batch runs, if a spare processor can poll or the driver has to:
// MPI moves data only when called, and a sleep takes longer than most messages between hosts.
constexpr nanoseconds patience_executing = milliseconds(2);

/// The engine whose pass this thread is in. Allocators of the program run in a pass.
thread_local const Engine* in_pass_of = nullptr;
thread_local const Engine* within = nullptr;  // the engine that this thread drives or waits for

}  // namespace

bool Engine::in_pass() const { return in_pass_of == this; }

bool Engine::has_this_thread() const { return within == this; }

bool Engine::wait(const detail::Operation& operation, TimePoint deadline) {
  if (operation.done()) return true;
  const Presence::Waiting waiting(presence_, deadline == TimePoint::max());
  return wait_until([&] { return operation.done(); }, deadline);
}

void Engine::wait_for_any(const std::function<bool()>& any_done) {
  const Presence::Waiting waiting(presence_, /*for_good=*/true);
  wait_until(any_done, TimePoint::max());
}

bool Engine::synchronize(const std::shared_ptr<backend::gpu::Completion>& batch,
                         TimePoint deadline) {
  if (batch->settled()) return true;
  require_outside_pass("");
  devices_.watch(batch);
  const Presence::Waiting waiting(presence_, deadline == TimePoint::max());
  return wait_until([&] { return batch->settled(); }, deadline);
}

bool Engine::wait_until(const Condition& met, TimePoint deadline) {
  require_outside_pass("");
  if (Burst* const burst = Burst::of_this_thread()) burst->publish();
  const Finally back([before = std::exchange(within, this)] { within = before; });
  std::unique_lock lock(mutex_);
  ++waiters_;  // the session's own thread gives up the token when it sees this
  // Between the count and the first read of the condition: pairs with the fence in `progress`.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const Finally not_waiting([&] {
    // The session's own thread may sleep for long, because it has seen this thread wait and expects
    // it to hand the bell over. But if the condition is met, a waiter leaves without driving; and a
    // ring after the bell was handed over may have woken the thread, which then sleeps again.
    if (--waiters_ == 0 && rests_ && !driven_) bell().wake(node::Listener::thread);
  });
  while (!met() && steady_clock::now() < deadline) {
    if (!driven_) {
      driven_ = true;
      const Finally token([&] {
        if (!lock.owns_lock()) lock.lock();
        driven_ = false;
        changed_.notify_all();  // another waiting thread takes the token
      });
      // Without the lock, because passes call allocators of the program: one of them may end the
      // process, whose handler needs the lock, and other threads may call Kolo meanwhile.
      lock.unlock();
      drive_until(met, deadline);
      // The token is held, so no other thread begins to drive before the bell is handed over. A
      // thread that waits meanwhile takes the token next, and drives itself.
      if (waiters_ == 1) hand_over();
      continue;
    }
    // The driver may sleep without knowing of this thread's submissions. If it is the session's own
    // thread, the ring makes it see that a thread waits.
    bell().ring();
    if (deadline == TimePoint::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, deadline);
    }
  }
  return met();
}

void Engine::listen(node::Listener listener) const {
  bell().listen(listener, progress_engine_.awaits_data() ? node::WakeReason::data
                                                         : node::WakeReason::messages);
}

void Engine::drive_until(const Condition& met, TimePoint deadline) {
  bell().stop_listening();
  TimePoint moved_at = steady_clock::now();
  nanoseconds pause = shortest_pause;
  while (!met()) {
    const bool moved = progress();
    const TimePoint now = steady_clock::now();
    if (now >= deadline) return;
    const bool executing = progress_engine_.executing();
    if (moved) {
      moved_at = now;
      pause = shortest_pause;
    } else if (now - moved_at < patience || (executing && now - moved_at < patience_executing &&
                                             (links_->has_processor_to_poll() || must_poll()))) {
      std::this_thread::yield();
    } else {
      listen(node::Listener::waiter);
      // Work from before `listen` did not ring, so one more pass looks for it. `met` is checked
      // again because another thread may have changed its condition.
      if (!progress() && !met())
        bell().sleep(node::Listener::waiter,
                     // `must_poll` is called again: `progress` may have started work to poll for.
                     std::min({must_poll() ? pause : settings_.test_max_sleep, until_due(now),
                               std::chrono::duration_cast<nanoseconds>(deadline - now)}));
      bell().stop_listening();
      recorder_.woke();
      pause = executing ? shortest_pause : std::min(2 * pause, max_pause);
    }
  }
}

/// Makes the session's own thread the listener when no thread waits any more. That thread is
/// already asleep. It is woken only if something moved after it became the listener, or if it has
/// to poll, because its pause was chosen when nothing was outstanding.
void Engine::hand_over() {
  rests_ = false;  // that thread sets it again if it wakes and still sees this one wait
  listen(node::Listener::thread);
  if (progress() || (must_poll() && progress_engine_.outstanding()))
    bell().wake(node::Listener::thread);
}

bool Engine::progress() {
  const Finally end_of_pass([before = std::exchange(in_pass_of, this)] { in_pass_of = before; });
  if (giving_up_) progress_engine_.give_up(reason_to_give_up_);
  if (leaving_) progress_engine_.leave(left_clean_, reason_of_leaving_);
  bool moved = progress_engine_.progress();
  // Acquire: the driver sees the function object as `run_on_driver` wrote it. Release: the thread
  // that waits for the null pointer sees the effects of the call.
  if (const std::function<void()>* const work = work_.load(std::memory_order_acquire)) {
    (*work)();
    work_.store(nullptr, std::memory_order_release);
    moved = true;
  }
  departed_.store(progress_engine_.departed(), std::memory_order_release);
  ended_.store(progress_engine_.ended(), std::memory_order_release);
  has_missed_ranks_.store(progress_engine_.has_missed_ranks(), std::memory_order_release);
  // A driver that is the only waiter checks its own condition. Any other waiter checks its
  // condition under the lock right before it sleeps: so either it sees the change, or it sleeps
  // already and is notified.
  if (moved) {
    // The driver changes the condition and then reads the number of waiters; a waiter counts itself
    // and then reads the condition. With a sequentially consistent fence in between on both sides,
    // either the driver sees the waiter or the waiter sees the change.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (waiters_ > 1) {
      const std::lock_guard lock(mutex_);
      changed_.notify_all();
    }
  }
  return moved;
}

void Engine::run() {
  within = this;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return started_ || stopping_; });
  bool gathered = false;
  while (!stopping_) {
    nanoseconds pause = settings_.test_max_sleep;
    const bool idle = !driven_ && waiters_ == 0;
    rests_ = !idle;
    if (idle && in_bursts_ && !gathered && queue_.any()) {
      // The first submission of a burst. Sleep while the rest arrives, so that the thread that will
      // wait for the burst finds all of it and drives.
      coalescing_ = true;
      pause_ = gathering_burst;
    } else if (idle) {
      driven_ = true;
      lock.unlock();
      const bool listens = drive_in_background();
      pause = pause_;
      lock.lock();
      driven_ = false;
      rests_ = waiters_ > 0;
      if (rests_) changed_.notify_all();  // one of them takes the token
      // A thread that waited has made this one stop, and has left meanwhile.
      if (!rests_ && !listens && !coalescing_) continue;
    }
    lock.unlock();  // a ring between here and the sleep ends the sleep at once
    gathered = coalescing_;
    if (coalescing_) {
      coalescing_sleep();
    } else {
      unattended_ = queue_.unattended();
      bell().sleep(node::Listener::thread, pause);
    }
    lock.lock();
  }
}

/// Drives until nothing moves, or until a thread waits, which then drives. Returns true if from now
/// on the bell wakes this thread.
bool Engine::drive_in_background() {
  recorder_.woke();
  bell().stop_listening();
  bool moved = false;
  bool listens = false;
  while (waiters_ == 0) {
    if (progress()) {
      moved = true;
      continue;
    }
    listen(node::Listener::thread);
    listens = !progress();
    if (listens) break;
    moved = true;
    bell().stop_listening();
  }
  pause_ = next_pause(moved);
  return listens;
}

nanoseconds Engine::next_pause(bool moved) {
  const TimePoint now = steady_clock::now();
  if (must_poll()) {
    if (moved) moved_at_ = now;
    if (!progress_engine_.outstanding() && now - moved_at_ > lively) return idle_pause;
    return moved ? shortest_pause : std::min(2 * pause_, max_pause);
  }
  // During a burst this thread checks for submissions at intervals, so they need not wake it one by
  // one.
  if (std::exchange(submissions_, progress_engine_.submissions()) != progress_engine_.submissions())
    coalescing_ = now - std::exchange(submitted_at_, now) < 2 * gathering;
  if (coalescing_) {
    unattended_ = queue_.unattended();
    return gathering;
  }
  return std::min(settings_.test_max_sleep, until_due(now));
}

nanoseconds Engine::until_due(TimePoint now) const {
  return std::max(nanoseconds(0), nanoseconds(progress_engine_.deadline() - now));
}

/// Sleeps for a short time in which submitters do not ring.
void Engine::coalescing_sleep() {
  bell().sleep(node::Listener::thread, pause_);
  coalescing_ = false;
  // `settled_unattended` takes the queue's lock between the store above and this thread's next look
  // at the queue. `submit` pushes under that lock and then reads `coalescing_`. So either `submit`
  // sees false and rings, or this thread finds the operation.
  in_bursts_ = queue_.settled_unattended() - unattended_ >= burst;
  // A thread that began to drive during the sleep got no ring for earlier submissions.
  const std::lock_guard lock(mutex_);
  if (driven_ || waiters_ > 0) bell().ring();
}

/// Called before every wait: a thread in a pass is the driver, and would wait for itself.
void Engine::require_outside_pass(const std::string& name) const {
  if (!in_pass()) return;
  throw InvalidArgument(
      "an allocator has called Kolo, and the operation that it allocates for cannot go on: call "
      "Kolo before or after that operation",
      name, {topology_.rank});
}

void Engine::run_on_driver(const std::function<void()>& work) {
  require_outside_pass("");  // before `work_` is stored, since nothing would reset it
  std::exception_ptr error;
  const std::function<void()> guarded = [&] {
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
  };
  std::unique_lock one_at_a_time(asking_);
  // Release: the driver sees the complete function object. `wait_until` drives or rings for the
  // driver. It must not return before the driver is done: the function object is on this stack.
  work_.store(&guarded, std::memory_order_release);
  wait_until([&] { return work_.load(std::memory_order_acquire) == nullptr; }, TimePoint::max());
  one_at_a_time.unlock();  // if no handler catches the error, no destructor does it
  if (error) std::rethrow_exception(error);
}

}  // namespace kolo::internal::session
