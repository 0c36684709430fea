// SPDX-License-Identifier: Apache-2.0
// The choice of the driver, its sleep, and its wake-up.
//
// No wake-up may be missed. A thread that has work for the driver stores it, then rings. The driver
// stores that it listens, makes progress once more, and sleeps only if nothing moved. Both sides
// have a sequentially consistent fence between their two steps (node/doorbell.hpp), so either the
// driver sees the work or the other thread sees the listener.
#include "session/engine/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/finally.hpp"
#include "base/log.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::session {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// A waiting thread that drives yields for this long after progress, then it sleeps: the next
// message of a running operation usually comes sooner than a sleeper would wake.
constexpr nanoseconds patience = microseconds(100);

// No thread sleeps longer, so that periodic checks are on time.
constexpr nanoseconds max_sleep = milliseconds(100);

// Submissions within this time of another gather without a ring each, which would cost more than
// the submission.
constexpr nanoseconds gathering = microseconds(50);

// After a burst of so many submissions another is likely, and a thread will wait for it, drive, and
// find all of it. The session's own thread would only take the processor from that thread.
constexpr std::uint64_t burst = 16;
constexpr nanoseconds gathering_burst = microseconds(500);

// Without rings the driver polls: waiting for MPI would use a whole core.
constexpr nanoseconds shortest_pause = microseconds(50);
constexpr nanoseconds max_pause = milliseconds(1);  // while an answer is awaited
constexpr nanoseconds idle_pause = milliseconds(5);
// Shortly after traffic more is likely, including messages that this rank only forwards.
constexpr nanoseconds lively = milliseconds(50);
// MPI moves data only when called, and a sleep costs more than most messages between hosts.
constexpr nanoseconds patience_executing = milliseconds(2);

negotiation::NegotiatorOptions complete(negotiation::NegotiatorOptions options,
                                        const Topology& topology, Links& links) {
  options.place =
      negotiation::build_tree(topology.node_of)[static_cast<std::size_t>(topology.rank)];
  options.now = steady_clock::now();
  options.board = links.board();
  return options;
}

diagnostics::RecorderOptions complete(diagnostics::RecorderOptions options, std::uint64_t session,
                                      const Topology& topology) {
  options.session = session;
  options.rank = topology.rank;
  options.size = topology.size;
  return options;
}

std::thread start_thread(std::function<void()> run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    throw BackendError(
        fmt::format("cannot start Kolo's background thread: {}. Check the limits on memory, stack "
                    "size and processes (ulimit -v, -s, -u)",
                    error.what()));
  }
}

/// Whose pass this thread is in. An allocator of the program runs in one.
thread_local const Engine* in_pass_of = nullptr;
thread_local const Engine* within = nullptr;  // which it drives, or waits for

}  // namespace

Engine::Engine(const EngineOptions& options, const Topology& topology, std::unique_ptr<Links> links,
               GpuLibraries gpu_libraries)
    : topology_(topology),
      stall_warning_(options.negotiation.stall_warning),
      links_(std::move(links)),
      devices_(links_->backend(), topology.rank, options.gpu, std::move(gpu_libraries)),
      process_sets_(options.negotiation.session, topology.rank, topology.size),
      queue_(topology.rank),
      recorder_(complete(options.recording, options.negotiation.session, topology)),
      progress_engine_(complete(options.negotiation, topology, *links_), queue_, *links_,
                       devices_.backend(), recorder_, presence_),
      thread_(start_thread([this] { run(); })) {}

Engine::~Engine() {
  if (thread_.joinable()) stop_thread();
}

void Engine::start() {
  const std::lock_guard lock(mutex_);
  started_ = true;
  changed_.notify_all();
}

bool Engine::in_pass() const { return in_pass_of == this; }

bool Engine::has_this_thread() const { return within == this; }

bool Engine::wait(const detail::Operation& operation, TimePoint deadline) {
  if (operation.done()) return true;
  const Presence::Waiting waiting(presence_, deadline == TimePoint::max());
  return wait_until([&] { return operation.done(); }, deadline);
}

bool Engine::wait_until(const Condition& met, TimePoint deadline) {
  require_outside_pass("");
  const Finally back([before = std::exchange(within, this)] { within = before; });
  std::unique_lock lock(mutex_);
  ++waiters_;  // the session's own thread gives up the token when it sees this
  // Before the first look at the condition; see `progress`.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const Finally not_waiting([&] { --waiters_; });
  while (!met() && steady_clock::now() < deadline) {
    if (!driven_) {
      driven_ = true;
      const Finally token([&] {
        if (!lock.owns_lock()) lock.lock();
        driven_ = false;
        changed_.notify_all();  // one of the others takes the token
      });
      lock.unlock();
      drive_until(met, deadline);
      lock.lock();
      // Under the lock and with the token: a thread that waits from now on drives itself.
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
      // Work from before `listen` did not ring, so it is checked once more; `met` too, since
      // another thread may have changed its condition.
      if (!progress() && !met())
        bell().sleep(node::Listener::waiter,
                     // Asked again: this call of `progress` may have left something to poll for.
                     std::min({must_poll() ? pause : max_sleep, until_due(now),
                               std::chrono::duration_cast<nanoseconds>(deadline - now)}));
      bell().stop_listening();
      recorder_.woke();
      pause = executing ? shortest_pause : std::min(2 * pause, max_pause);
    }
  }
}

/// No thread waits any more: from now on the bell wakes the session's own thread. That thread
/// sleeps already and is woken only if something moved after it became the listener, or if it has
/// to poll: its pause was chosen when nothing was outstanding.
void Engine::hand_over() {
  listen(node::Listener::thread);
  if (progress() || (must_poll() && progress_engine_.outstanding()))
    bell().wake(node::Listener::thread);
}

bool Engine::progress() {
  const Finally end_of_pass([before = std::exchange(in_pass_of, this)] { in_pass_of = before; });
  if (giving_up_) progress_engine_.give_up(reason_to_give_up_);
  if (leaving_) progress_engine_.leave(left_clean_, reason_of_leaving_);
  bool moved = progress_engine_.progress();
  // Acquire: the work as its thread has written it. Release: the thread sees its effects.
  if (const std::function<void()>* const work = work_.load(std::memory_order_acquire)) {
    (*work)();
    work_.store(nullptr, std::memory_order_release);
    moved = true;
  }
  departed_.store(progress_engine_.departed(), std::memory_order_release);
  ended_.store(progress_engine_.ended(), std::memory_order_release);
  has_missed_ranks_.store(progress_engine_.has_missed_ranks(), std::memory_order_release);
  // If this thread is the only one that waits, it checks its own condition. A waiter that finds the
  // token taken checks its condition once more before it sleeps, both under the lock: so either it
  // sees the change, or it sleeps already and is notified.
  if (moved) {
    // The driver changes the condition and then reads the number of waiters; a waiter counts itself
    // and then reads the condition. With a fence in between on both sides, one sees the other.
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
    nanoseconds pause = max_sleep;
    const bool idle = !driven_ && waiters_ == 0;
    if (idle && in_bursts_ && !gathered && queue_.any()) {
      // The first of a burst: let the rest come, and the thread that waits for them drive.
      coalescing_ = true;
      pause_ = gathering_burst;
    } else if (idle) {
      driven_ = true;
      lock.unlock();
      drive_in_background();
      pause = pause_;
      lock.lock();
      driven_ = false;
      if (waiters_ > 0) changed_.notify_all();  // they take the token
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

/// Until nothing moves or a thread waits, which then drives. On return the bell wakes this thread,
/// unless a thread waits.
void Engine::drive_in_background() {
  recorder_.woke();
  bell().stop_listening();
  bool moved = false;
  while (waiters_ == 0) {
    if (progress()) {
      moved = true;
      continue;
    }
    listen(node::Listener::thread);
    if (!progress()) break;
    moved = true;
    bell().stop_listening();
  }
  pause_ = next_pause(moved);
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
  return std::min(max_sleep, until_due(now));
}

nanoseconds Engine::until_due(TimePoint now) const {
  return std::max(nanoseconds(0), nanoseconds(progress_engine_.deadline() - now));
}

/// Sleeps for a short time in which submitters do not ring.
void Engine::coalescing_sleep() {
  bell().sleep(node::Listener::thread, pause_);
  coalescing_ = false;
  // The lock orders the store before the next look at the queue: `submit` pushes and then reads
  // `coalescing_`, so either it rings, or this thread finds the operation.
  in_bursts_ = queue_.settled_unattended() - unattended_ >= burst;
  // A thread that began to drive meanwhile got no ring for earlier submissions.
  const std::lock_guard lock(mutex_);
  if (driven_ || waiters_ > 0) bell().ring();
}

}  // namespace kolo::internal::session
