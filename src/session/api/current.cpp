// SPDX-License-Identifier: Apache-2.0
#include "session/api/current.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "base/log.hpp"
#include "kolo/error.hpp"
#include "session/job/job.hpp"

namespace kolo::internal::session {
namespace {

/// The session of the process. Never destroyed: if a session is still open when the process or a
/// forked child ends, nothing must touch the session's thread.
struct Current {
  std::mutex mutex;  // guards `engine`, `stuck` and `changing`
  std::shared_ptr<Engine> engine;
  bool changing = false;  // a thread is starting or destroying an engine
  // The same engine, for threads that take no reference and only count themselves in `uses`. Such a
  // thread increments `uses` and then reads this pointer; the thread that ends the session clears
  // the pointer and then reads `uses`. All four accesses are sequentially consistent, so either the
  // using thread sees null or the ending thread sees the use.
  std::atomic<Engine*> usable{nullptr};
  std::atomic<int> uses{0};
  std::vector<std::shared_ptr<Engine>> stuck;  // engines that some thread still uses: kept forever
  std::mutex ending;                           // held while a session ends
  std::atomic<std::int64_t> step_epoch{0};     // starts of sessions, and joins that completed
  std::atomic<std::int64_t> passes{0};         // the most of any optimizer in this step epoch
  std::atomic<bool> pass_has_failed{false};    // the last one, on this rank
  StartArguments arguments{};                  // the last session's, for `restart_session`
  std::once_flag announces_departures{};
  std::terminate_handler next_handler = nullptr;  // the program's own handler
};
Current& current = *new Current;

/// Keeps other threads from starting a session while it lives. Construct it with the mutex held.
class Change {
 public:
  Change() { current.changing = true; }
  ~Change() {
    const std::lock_guard lock(current.mutex);
    current.changing = false;
  }
  Change& operator=(Change&&) = delete;
};

/// Waits until no thread uses the former engine. The caller must hold one reference to it. Gives up
/// and returns false after a second, for example if a thread was stopped in the middle of a call.
bool uses_end(const std::shared_ptr<Engine>& engine) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (current.uses > 0 || engine.use_count() > 1) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Unlocks before it throws InvalidArgument. If no handler catches the exception, no destructor
/// runs, and the terminate handler would wait for the lock forever.
Change begin_start() {
  std::unique_lock lock(current.mutex);
  if (!current.engine && !current.changing) return {};
  const bool is_open = current.engine != nullptr;
  lock.unlock();
  throw InvalidArgument(
      is_open ? "a session is open already: a process has one at a time"
              : "another thread is starting or ending a session: a process has one at a time");
}

/// Removes the current engine: from now on there is no session.
Change take_current() {
  const std::lock_guard lock(current.mutex);
  current.engine.reset();
  return {};
}

constexpr const char* no_session =
    "there is no session: make a kolo::Session or call kolo::init first";

// The next functions handle ends of the process that run no destructor of a Session. They tell the
// other ranks, which would otherwise wait for this one, or compute for nothing. The process itself
// must end soon if it has failed: its launcher then ends the job.

constexpr std::chrono::seconds time_to_tell{1};
constexpr std::chrono::seconds time_for_others_to_leave{2};

/// Leaves the session on a new thread, and waits for that thread only as long as telling the other
/// ranks may take. The terminating thread may hold any lock, since no destructor has run, so the
/// new thread may never get a lock that it needs.
void leave_from_another_thread(const std::string& reason) {
  try {
    std::packaged_task<void()> leave([reason] {
      if (const std::shared_ptr<Engine> engine = find_engine()) {
        if (!engine->has_missed_ranks()) this_job().membership.report_own_failure(reason);
        engine->leave_now(reason, time_to_tell);
      }
    });
    const std::future<void> done = leave.get_future();
    std::thread(std::move(leave)).detach();
    // Twice the time, since the thread itself waits for the other ranks.
    static_cast<void>(done.wait_for(2 * time_to_tell));
  } catch (const std::exception&) {
    // No memory or no thread: the other ranks notice the end of the process.
  }
}

[[noreturn]] void on_terminate() {
  leave_from_another_thread(std::current_exception()
                                ? "an uncaught exception: " + message_of_current_exception()
                                : "std::terminate was called");
  if (current.next_handler != nullptr) current.next_handler();
  std::abort();
}

void on_exit(int status, void* /*unused*/) {
  std::string reason = "its process exits";
  if (const std::shared_ptr<Engine> engine = find_engine()) {
    // If a signal handler that interrupted the driver calls `exit`, `end_session` would wait for
    // this very thread. Return instead; the other ranks notice the end of the process.
    if (engine->has_this_thread()) return;
    if (status != 0) {
      reason += fmt::format(" with status {}", status);
      if (!engine->has_missed_ranks()) this_job().membership.report_own_failure(reason);
      if (!engine->leave_or_give_up(reason, time_for_others_to_leave))
        this_job().mpi.abort_at_exit(/*for_good=*/false);
    }
  }
  end_session(status == 0, reason);
  if (!this_job().is_forked) this_job().membership.leave(status);
}

/// Installs the handlers once. Must be called after MPI was started: exit handlers run in reverse
/// order, and a session that is still open when `exit` is called needs MPI for its end.
void announce_departures() {
  std::call_once(current.announces_departures, [] {
    current.next_handler = std::set_terminate(on_terminate);
    ::on_exit(on_exit, nullptr);
  });
}

/// Starts a session over MPI. The steps that may fail on this rank alone come first, so that the
/// other ranks do not start a session without it.
std::shared_ptr<Engine> start_over_mpi(const StartArguments& arguments) {
  MpiEnvironment& mpi = this_job().mpi;
  mpi.start(arguments.argc, arguments.argv);
  if (arguments.communicator == nullptr) mpi.require_whole_world();
  announce_departures();
  mpi.before_end([] {
    if (this_job().kind != JobKind::served) end_session(true, "its program finalizes MPI");
  });
  std::shared_ptr<Engine> started = start_engine_over_mpi(arguments);
  mpi.expect_no_abort(started->topology().size);
  return started;
}

/// True if the error concerns only other ranks, and the job is elastic: it continues without them.
bool is_for_others(const Error& error, int rank) {
  return this_job().membership.is_elastic() && !error.ranks().empty() &&
         std::ranges::find(error.ranks(), rank) == error.ranks().end();
}

/// Starts a session through the rendezvous server. An elastic job tries again without ranks that
/// are lost or fail during the start.
std::shared_ptr<Engine> start_served(const StartArguments& arguments) {
  JobMembership& membership = this_job().membership;
  while (true) {
    rendezvous::Rendezvous& world = membership.join_generation();
    try {
      return start_engine(world, arguments);
    } catch (const PeerLeft& error) {
      if (!membership.is_elastic()) throw;
      log(LogLevel::info, std::string("the session starts anew: ") + error.what());
    } catch (const InvalidArgument& error) {
      if (!is_for_others(error, world.rank())) throw;
      log(LogLevel::warning, std::string("the session starts anew: ") + error.what());
      membership.report_failure(error.ranks(), error.what());
    }
  }
}

/// Starts the engine in the way that the kind of the job requires.
std::shared_ptr<Engine> start(const StartArguments& arguments) {
  Job& job = this_job();
  if (job.kind == JobKind::mpi) return start_over_mpi(arguments);
  announce_departures();
  return job.kind == JobKind::served ? start_served(arguments)
                                     : start_engine(job.single_process, arguments);
}

/// The reason in the errors of ranks that still need this one. If it has left without an error, it
/// has probably run out of data before them.
std::string told_to_others(bool clean, const std::string& reason) {
  if (!clean) return reason;
  const std::int64_t passes = current.passes;
  return fmt::format(
      "{}{}{}", reason.empty() ? "it ended its session" : reason,
      passes > 0 ? fmt::format(" after {} passes that reduced gradients", passes) : "",
      current.pass_has_failed
          ? ". Its last backward() has thrown: see the error of that rank"
          : ". If it has run out of data, call kolo::join() on all ranks after their last step");
}

}  // namespace

std::shared_ptr<Engine> find_engine() noexcept {
  if (this_job().is_forked) return nullptr;
  const std::lock_guard lock(current.mutex);
  return current.engine;
}

std::shared_ptr<Engine> current_engine(std::string_view function) {
  this_job().require_not_forked();
  std::shared_ptr<Engine> found = find_engine();
  if (!found) throw NotInitialized(fmt::format("{}: {}", function, no_session));
  return found;
}

EngineInUse::EngineInUse(OperationType type, const std::string& name) {
  this_job().require_not_forked();
  ++current.uses;
  engine_ = current.usable;
  if (engine_ != nullptr && !agreements_are_deferred()) return;
  --current.uses;
  if (std::exchange(engine_, nullptr) != nullptr)
    require_collectives_allowed(to_string(type), name);
  const std::string quoted = name.empty() ? "" : " \"" + name + '"';
  throw NotInitialized(fmt::format("{}{}: {}", to_string(type), quoted, no_session), name);
}

EngineInUse::~EngineInUse() {
  if (engine_ != nullptr) --current.uses;
}

void begin_step_epoch() noexcept {
  current.passes = 0;
  current.pass_has_failed = false;
  ++current.step_epoch;
}

std::int64_t note_passes(std::int64_t passes) noexcept {
  std::int64_t most = current.passes;
  while (most < passes && !current.passes.compare_exchange_weak(most, passes)) {
  }
  return std::max(most, passes);
}

void note_failed_pass(bool failed) noexcept { current.pass_has_failed = failed; }

std::int64_t step_epoch() noexcept { return current.step_epoch; }

void start_session(const StartArguments& arguments) {
  Job& job = this_job();
  job.require_not_forked();
  const Change change = begin_start();
  job.watch_forks();
  job.choose_kind(arguments.communicator != nullptr);
  std::shared_ptr<Engine> started = start(arguments);
  begin_step_epoch();
  current.arguments = arguments;  // `change` keeps other threads from it
  const std::lock_guard lock(current.mutex);
  current.usable = started.get();
  current.engine = std::move(started);
}

void restart_session() {
  const StartArguments arguments = current.arguments;
  start_session(arguments);
}

void abandon_session(const Error& why) {
  if (const std::shared_ptr<Engine> engine = find_engine())
    engine->give_up({FailureKind::peer_left, why.what(), "", RankSet::of(why.ranks())});
  end_session(false, why.what());
}

bool agreements_are_deferred() noexcept {
  const Job& job = this_job();
  return !job.has_run_elastically.load(std::memory_order_relaxed) && job.membership.is_elastic();
}

void require_collectives_allowed(std::string_view type, const std::string& name) {
  if (!agreements_are_deferred()) return;
  throw InvalidArgument(
      fmt::format("{}{}: in an elastic job, collectives belong in the function that "
                  "kolo::elastic::run calls. A process that joins later would wait for ranks that "
                  "do not call this any more. Parameters need no broadcast: run gives all ranks "
                  "those of rank 0",
                  type, name.empty() ? "" : " \"" + name + '"'),
      name);
}

void end_session(bool clean, const std::string& reason) {
  Job& job = this_job();
  if (job.is_forked) return;
  // Held to the end, so that a second caller returns only when the session has ended.
  const std::lock_guard ending_lock(current.ending);
  std::shared_ptr<Engine> ended = find_engine();
  if (!ended) return;
  if (!clean && !ended->has_missed_ranks()) job.membership.report_own_failure(reason);
  ended->shut_down(clean, told_to_others(clean, reason));
  if (job.kind == JobKind::served) {
    if (clean && !ended->failed()) job.membership.end_generation();
  } else {
    if (ended->lost_a_process() || ended->left_requests())
      job.mpi.abort_at_exit(ended->left_requests());
    job.mpi.watch_at_exit(ended->links().other_processes());
  }
  current.usable = nullptr;  // before `uses_end` reads `uses`; see `Current::usable`
  const Change change = take_current();
  // Destroy the engine on this thread, because its destructor calls MPI, which other threads may
  // not.
  if (uses_end(ended)) return ended.reset();
  const std::lock_guard lock(current.mutex);
  current.stuck.push_back(std::move(ended));
}

}  // namespace kolo::internal::session
