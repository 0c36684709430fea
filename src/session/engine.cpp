#include "session/engine.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "kolo/error.hpp"
#include "negotiation/tree.hpp"

namespace kolo::session {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// Control messages are polled for, since MPI cannot be waited for without burning a core.
constexpr nanoseconds shortest_pause = microseconds(50);
constexpr nanoseconds longest_pause = milliseconds(1);  // while an answer is awaited
constexpr nanoseconds idle_pause = milliseconds(5);
// Right after traffic more of it is likely, be it of others that this rank passes on.
constexpr nanoseconds lively = milliseconds(50);
// A thread whose caller waits yields for this long after something moved, then it pauses.
constexpr nanoseconds patience = microseconds(100);
constexpr nanoseconds patience_executing = milliseconds(2);  // MPI moves data only when called

negotiation::NegotiatorOptions negotiator_options(const Settings& settings,
                                                  const Topology& topology, std::uint64_t session) {
  return {
      .place = negotiation::build_tree(topology.node_of)[static_cast<std::size_t>(topology.rank)],
      .session = session,
      .fusion_threshold = settings.fusion_threshold,
      .cache_capacity = settings.cache_capacity,
      .stall_warning = settings.stall_warning,
      .stall_shutdown = settings.stall_shutdown,
      .now = steady_clock::now()};
}

}  // namespace

Engine::Engine(const Settings& settings, const Topology& topology, std::uint64_t session,
               std::unique_ptr<Links> links)
    : settings_(settings),
      topology_(topology),
      links_(std::move(links)),
      process_sets_(session, topology_.rank, topology_.size),
      queue_(topology_.rank),
      coordinator_(negotiator_options(settings_, topology_, session), queue_, links_->transport(),
                   links_->backend()),
      thread_([this] { run(); }) {}

OperationPtr Engine::submit(Submission submission, bool waits) {
  if (leaving_) throw ShutDown("this rank has left the session", submission.name, {topology_.rank});
  OperationPtr operation = queue_.push(shared_from_this(), std::move(submission));
  if (!waits) {
    const std::lock_guard lock(mutex_);
    rung_ = true;
    if (waiters_ == 0) bell_.notify_one();
  }
  return operation;
}

bool Engine::wait(const detail::Operation& operation, TimePoint deadline) {
  return operation.done() || wait_until([&] { return operation.done(); }, deadline);
}

bool Engine::wait_until(const Condition& met, TimePoint deadline) {
  std::unique_lock lock(mutex_);
  ++waiters_;
  while (!met() && steady_clock::now() < deadline) {
    if (!driven_) {
      driven_ = true;
      lock.unlock();
      drive_until(met, deadline);
      lock.lock();
      driven_ = false;
      changed_.notify_all();
    } else if (deadline == TimePoint::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, deadline);
    }
  }
  --waiters_;
  return met();
}

void Engine::drive_until(const Condition& met, TimePoint deadline) {
  TimePoint moved_at = steady_clock::now();
  nanoseconds pause = shortest_pause;
  while (!met()) {
    const bool moved = turn();
    const TimePoint now = steady_clock::now();
    if (now >= deadline) return;
    if (moved) {
      moved_at = now;
      pause = shortest_pause;
    } else if (now - moved_at < (coordinator_.executing() ? patience_executing : patience)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::min<nanoseconds>(pause, deadline - now));
      pause = coordinator_.executing() ? shortest_pause : std::min(2 * pause, longest_pause);
    }
  }
}

bool Engine::turn() {
  if (leaving_) {
    const std::lock_guard lock(mutex_);
    coordinator_.leave(left_clean_, reason_of_leaving_);
  }
  const bool moved = coordinator_.turn();
  departed_ = coordinator_.departed();
  ended_ = coordinator_.ended();
  if (moved && waiters_ > 1) {
    const std::lock_guard lock(mutex_);  // a waiter has either seen the change or sleeps already
    changed_.notify_all();
  }
  return moved;
}

void Engine::run() {
  std::unique_lock lock(mutex_);
  nanoseconds pause = shortest_pause;
  TimePoint moved_at = steady_clock::now();
  while (!stopping_) {
    bool outstanding = false;
    if (!driven_ && waiters_ == 0) {
      driven_ = true;
      rung_ = false;
      lock.unlock();
      const bool moved = turn();
      outstanding = coordinator_.outstanding();
      const bool executing = coordinator_.executing();
      pause = moved ? shortest_pause : std::min(2 * pause, longest_pause);
      const TimePoint now = steady_clock::now();
      if (moved) moved_at = now;
      if (!outstanding && now - moved_at > lively) pause = idle_pause;
      lock.lock();
      driven_ = false;
      if (waiters_ > 0) changed_.notify_all();
      if (moved && executing) continue;  // there is more to do
    }
    // What is submitted while answers are awaited gathers until the pause is over.
    bell_.wait_for(lock, pause,
                   [&] { return stopping_ || (rung_ && !outstanding && waiters_ == 0); });
  }
}

void Engine::leave(bool clean, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (leaving_) return;
  left_clean_ = clean;
  reason_of_leaving_ = reason;
  leaving_ = true;
  rung_ = true;
  bell_.notify_one();
}

void Engine::leave_now(const std::string& reason, nanoseconds timeout) {
  leave(false, reason);
  wait_until([&] { return departed_.load(); }, steady_clock::now() + timeout);
}

void Engine::shut_down(bool clean, const std::string& reason) {
  leave(clean, reason);
  const nanoseconds patient = settings_.stall_warning.count() > 0
                                  ? settings_.stall_warning
                                  : nanoseconds(std::chrono::hours(1));
  while (!wait_until([&] { return ended_.load(); }, steady_clock::now() + patient))
    log(LogLevel::warning,
        "this rank has left the session and still waits for other ranks to leave it");
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    bell_.notify_one();
  }
  thread_.join();
}

}  // namespace kolo::session
