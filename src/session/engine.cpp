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

// A thread whose caller waits yields for this long after something moved, then it sleeps.
constexpr nanoseconds patience = microseconds(100);

// Nobody sleeps longer: what depends on the time is looked after at least so often.
constexpr nanoseconds longest_sleep = milliseconds(100);

// What is submitted within this time of something else gathers: the submitting thread need not wake
// anybody each time.
constexpr nanoseconds gathering = microseconds(50);

// Where so many come at once they most likely will again, and then somebody waits, who does the
// work and finds all of it.
constexpr std::uint64_t burst = 16;
constexpr nanoseconds gathering_burst = microseconds(500);

// Where nobody rings one has to look: MPI cannot be waited for without burning a core.
constexpr nanoseconds shortest_pause = microseconds(50);
constexpr nanoseconds longest_pause = milliseconds(1);  // while an answer is awaited
constexpr nanoseconds idle_pause = milliseconds(5);
// Right after traffic more of it is likely, be it of others that this rank passes on.
constexpr nanoseconds lively = milliseconds(50);
constexpr nanoseconds patience_executing = milliseconds(2);  // MPI moves data only when called

negotiation::NegotiatorOptions negotiator_options(const Settings& settings,
                                                  const Topology& topology, std::uint64_t session,
                                                  Links& links) {
  return {
      .place = negotiation::build_tree(topology.node_of)[static_cast<std::size_t>(topology.rank)],
      .session = session,
      .fusion_threshold = settings.fusion_threshold,
      .cache_capacity = settings.cache_capacity,
      .stall_warning = settings.stall_warning,
      .stall_shutdown = settings.stall_shutdown,
      .now = steady_clock::now(),
      .board = links.board(),
      .plan_replay = settings.plan_replay};
}

diagnostics::RecorderOptions recorder_options(const Settings& settings, const Topology& topology,
                                              std::uint64_t session) {
  return {.session = session,
          .rank = topology.rank,
          .size = topology.size,
          .events = static_cast<std::size_t>(settings.flight_recorder),
          .directory = settings.flight_recorder_dir,
          .signal = settings.flight_recorder_signal,
          .statistics = settings.statistics};
}

}  // namespace

Engine::Engine(const Settings& settings, const Topology& topology, std::uint64_t session,
               std::unique_ptr<Links> links, GpuLibraries gpu_libraries)
    : settings_(settings),
      topology_(topology),
      links_(std::move(links)),
      devices_(links_->backend(), topology_.rank, settings_, std::move(gpu_libraries)),
      process_sets_(session, topology_.rank, topology_.size),
      queue_(topology_.rank),
      recording_(recorder_options(settings_, topology_, session)),
      coordinator_(negotiator_options(settings_, topology_, session, *links_), queue_, *links_,
                   devices_.backend(), recording_, presence_),
      thread_([this] { run(); }) {}

OperationPtr Engine::submit(Submission&& submission, bool waits) {
  if (leaving_) throw ShutDown("this rank has left the session", submission.name, {topology_.rank});
  presence_.submits();
  OperationPtr operation = queue_.push(*this, submission, waits);
  if (!waits && (!napping_ || waiters_ > 0)) bell().ring();
  return operation;
}

bool Engine::wait(const detail::Operation& operation, TimePoint deadline) {
  if (operation.done()) return true;
  const Presence::Waiting waiting(presence_, deadline == TimePoint::max());
  return wait_until([&] { return operation.done(); }, deadline);
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
      if (waiters_ == 1) hand_over();
      driven_ = false;
      changed_.notify_all();
      continue;
    }
    bell().ring();  // the driver may sleep and does not know of what this thread submitted
    if (deadline == TimePoint::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, deadline);
    }
  }
  --waiters_;
  return met();
}

void Engine::listen(node::Listener who) const {
  bell().listen(who, coordinator_.awaits_data() ? node::Concern::data : node::Concern::messages);
}

void Engine::drive_until(const Condition& met, TimePoint deadline) {
  bell().stop_listening();
  TimePoint moved_at = steady_clock::now();
  nanoseconds pause = shortest_pause;
  while (!met()) {
    const bool moved = turn();
    const TimePoint now = steady_clock::now();
    if (now >= deadline) return;
    const bool polls = must_poll();
    const bool executing = coordinator_.executing();
    if (moved) {
      moved_at = now;
      pause = shortest_pause;
    } else if (now - moved_at < (polls && executing ? patience_executing : patience)) {
      std::this_thread::yield();
    } else {
      listen(node::Listener::waiter);
      if (!turn() && !met())
        bell().sleep(node::Listener::waiter,
                     std::min({polls ? pause : longest_sleep, until_due(now),
                               std::chrono::duration_cast<nanoseconds>(deadline - now)}));
      bell().stop_listening();
      recording_.woke();
      pause = executing ? shortest_pause : std::min(2 * pause, longest_pause);
    }
  }
}

/// Nobody waits any more: from now on the session's own thread hears the bell. It need not be woken
/// for that.
void Engine::hand_over() {
  listen(node::Listener::thread);
  if (turn() || (must_poll() && coordinator_.outstanding())) bell().wake(node::Listener::thread);
}

bool Engine::turn() {
  if (leaving_) coordinator_.leave(left_clean_, reason_of_leaving_);
  bool moved = coordinator_.turn();
  if (const std::function<void()>* const work = work_.load(std::memory_order_acquire)) {
    (*work)();
    work_.store(nullptr, std::memory_order_release);
    moved = true;
  }
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
  bool gathered = false;
  while (!stopping_) {
    nanoseconds pause = longest_sleep;
    const bool idle = !driven_ && waiters_ == 0;
    if (idle && in_bursts_ && !gathered && queue_.any()) {
      napping_ = true;
      pause_ = gathering_burst;
    } else if (idle) {
      driven_ = true;
      lock.unlock();
      drive_in_background();
      pause = pause_;
      lock.lock();
      driven_ = false;
      if (waiters_ > 0) changed_.notify_all();
    }
    lock.unlock();
    gathered = napping_;
    if (napping_) {
      nap();
    } else {
      unattended_ = queue_.unattended();
      bell().sleep(node::Listener::thread, pause);
    }
    lock.lock();
  }
}

/// Until nothing moves or somebody waits, who then drives. What is left to come rings.
void Engine::drive_in_background() {
  recording_.woke();
  bell().stop_listening();
  bool moved = false;
  while (waiters_ == 0) {
    if (turn()) {
      moved = true;
      continue;
    }
    listen(node::Listener::thread);
    if (!turn()) break;
    moved = true;
    bell().stop_listening();
  }
  pause_ = next_pause(moved);
}

nanoseconds Engine::next_pause(bool moved) {
  const TimePoint now = steady_clock::now();
  if (must_poll()) {
    if (moved) moved_at_ = now;
    if (!coordinator_.outstanding() && now - moved_at_ > lively) return idle_pause;
    return moved ? shortest_pause : std::min(2 * pause_, longest_pause);
  }
  // In a burst of submissions they are looked for, and need not wake this thread one by one.
  if (std::exchange(submissions_, coordinator_.submissions()) != coordinator_.submissions())
    napping_ = now - std::exchange(submitted_at_, now) < 2 * gathering;
  if (napping_) {
    unattended_ = queue_.unattended();
    return gathering;
  }
  return std::min(longest_sleep, until_due(now));
}

/// How long at most until something that depends on the time must be looked after.
nanoseconds Engine::until_due(TimePoint now) const {
  return std::max(nanoseconds(0), nanoseconds(coordinator_.deadline() - now));
}

void Engine::nap() {
  bell().sleep(node::Listener::thread, pause_);
  napping_ = false;
  in_bursts_ = queue_.unattended() - unattended_ >= burst;
  const std::lock_guard lock(mutex_);
  if (driven_ || waiters_ > 0) bell().ring();  // who drives now was not told either
}

void Engine::in_turn(const std::function<void()>& work) {
  std::exception_ptr error;
  const std::function<void()> guarded = [&] {
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
  };
  const std::lock_guard one_at_a_time(asking_);
  work_.store(&guarded, std::memory_order_release);
  wait_until([&] { return work_.load(std::memory_order_acquire) == nullptr; }, TimePoint::max());
  if (error) std::rethrow_exception(error);
}

void Engine::start_timeline(std::shared_ptr<diagnostics::Timeline> timeline) {
  in_turn([&] {
    if (recording_.timeline() != nullptr)
      throw InvalidArgument("a timeline is being written already: stop it first", "",
                            {topology_.rank});
    recording_.set_timeline(std::move(timeline));
  });
}

void Engine::stop_timeline() {
  std::shared_ptr<diagnostics::Timeline> timeline;
  in_turn([&] {
    timeline = recording_.timeline();
    recording_.set_timeline(nullptr);
  });
  if (timeline == nullptr) return;
  if (const std::string error = timeline->close(); !error.empty())
    throw BackendError(error, "", {topology_.rank});
}

std::string Engine::write_flight_record(const std::string& path) {
  std::string written;
  in_turn([&] { written = coordinator_.write_flight_record(path); });
  return written;
}

void Engine::leave(bool clean, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (leaving_) return;
  left_clean_ = clean;
  reason_of_leaving_ = reason;
  leaving_ = true;
  bell().ring();
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
        "this rank has left the session and still waits for other ranks to leave it:" +
            coordinator_.describe_others());
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  bell().wake(node::Listener::thread);
  thread_.join();
  recording_.end();
  write_suppressed();
  queue_.close();
}

}  // namespace kolo::session
