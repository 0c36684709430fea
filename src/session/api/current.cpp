// SPDX-License-Identifier: Apache-2.0
#include "session/api/current.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/format.hpp"
#include "base/log.hpp"
#include "kolo/error.hpp"
#include "session/job/fork_guard.hpp"
#include "session/job/job.hpp"
#include "session/job/launcher.hpp"
#include "session/job/mpi_environment.hpp"
#include "session/job/single_process.hpp"

namespace kolo::internal::session {
namespace {

/// The one global. Never destroyed, so that neither the end of the process nor that of a forked
/// child touches the thread of a session that is still open.
struct Current {
  std::mutex mutex;  // of `engine`, `stuck`, `changing` and `in_job`
  std::shared_ptr<Engine> engine;
  bool changing = false;  // a thread starts or destroys an engine
  bool in_job = false;    // the engine's ranks are those of kolorun's job
  // The same engine, for threads that only count themselves in `uses`. Such a thread counts first
  // and reads this afterwards; the thread that ends the session clears this first and reads `uses`
  // afterwards. Both are sequentially consistent, so either the one sees null or the other sees the
  // use.
  std::atomic<Engine*> usable{nullptr};
  std::atomic<int> uses{0};
  std::vector<std::shared_ptr<Engine>> stuck;  // still in use, so never destroyed
  std::mutex ending;                           // held while a session ends
  std::atomic<std::int64_t> step_epoch{0};     // starts of sessions, and joins that completed
  StartArguments arguments{};                  // of the last session
  std::atomic<bool> runs_together{false};      // was in `elastic::run`
};
Current& current = *new Current;

/// While it lives no other thread starts a session. To be made with the mutex held.
class Change {
 public:
  Change() { current.changing = true; }
  ~Change() {
    const std::lock_guard lock(current.mutex);
    current.changing = false;
  }
  Change& operator=(Change&&) = delete;
};

/// Waits until no thread uses the engine that was the current one, of which the caller has one
/// reference. False after a second: then a thread was stopped in the middle of a call.
bool uses_end(const std::shared_ptr<Engine>& engine) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (current.uses > 0 || engine.use_count() > 1) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

Change begin_start() {
  const std::lock_guard lock(current.mutex);
  if (current.engine)
    throw InvalidArgument("a session is open already: a process has one at a time");
  if (current.changing)
    throw InvalidArgument(
        "another thread is starting or ending a session: a process has one at a time");
  return {};
}

bool in_job() {
  const std::lock_guard lock(current.mutex);
  return current.in_job;
}

/// From now on there is no session.
Change take_current() {
  const std::lock_guard lock(current.mutex);
  current.engine.reset();
  return {};
}

constexpr const char* no_session =
    "there is no session: make a kolo::Session or call kolo::init first";

// The other ranks also learn of ends of the process that run no destructor.

std::terminate_handler next_handler = nullptr;

[[noreturn]] void on_terminate() {
  // The job ends within seconds of this process: the other ranks must learn of it before.
  if (const std::shared_ptr<Engine> engine = find_engine())
    engine->leave_now(std::current_exception()
                          ? "an uncaught exception: " + message_of_current_exception()
                          : "std::terminate was called",
                      std::chrono::seconds(1));
  if (next_handler != nullptr) next_handler();
  std::abort();
}

void on_exit(int status, void* /*unused*/) {
  // A signal handler ends the process, and the session would wait for this thread. The other ranks
  // notice the end of the process.
  if (const std::shared_ptr<Engine> engine = find_engine(); engine && engine->has_this_thread())
    return;
  end_session(true, "its process exits");
  if (!forked()) leave_job(status);
}

/// Once, and after MPI was started: exit handlers run in reverse order, and a session that is still
/// open when `exit` is called needs MPI to end.
void announce_departures() {
  static std::once_flag once;
  std::call_once(once, [] {
    next_handler = std::set_terminate(on_terminate);
    ::on_exit(on_exit, nullptr);
  });
}

/// First all that may fail on this rank alone: the others must not have a session without it.
std::shared_ptr<Engine> start_over_mpi(const StartArguments& arguments) {
  start_mpi(arguments.argc, arguments.argv);
  if (arguments.communicator == nullptr) require_whole_world();
  announce_departures();
  before_mpi_ends([] {
    if (!in_job()) end_session(true, "its program finalizes MPI");
  });
  std::shared_ptr<Engine> started = start_engine_over_mpi(arguments);
  expect_no_abort(started->topology().size);
  return started;
}

std::shared_ptr<Engine> start_alone(const StartArguments& arguments) {
  announce_departures();
  SingleProcess world;
  return start_engine(world, arguments);
}

/// These ranks cannot start, and the others can go on without them.
bool is_for_others(const Error& error, int rank) {
  return is_elastic_job() && !error.ranks().empty() &&
         std::ranges::find(error.ranks(), rank) == error.ranks().end();
}

/// An elastic job goes on without ranks that are lost or fail while the session starts.
std::shared_ptr<Engine> start_in_job(const StartArguments& arguments) {
  announce_departures();
  while (true) {
    rendezvous::Rendezvous& world = join_generation();
    try {
      return start_engine(world, arguments);
    } catch (const PeerLeft& error) {
      if (!is_elastic_job()) throw;
      log(LogLevel::info, std::string("the session starts anew: ") + error.what());
    } catch (const InvalidArgument& error) {
      if (!is_for_others(error, world.rank())) throw;
      log(LogLevel::warning, std::string("the session starts anew: ") + error.what());
      accuse(error.ranks(), error.what());
    }
  }
}

}  // namespace

std::shared_ptr<Engine> find_engine() noexcept {
  if (forked()) return nullptr;
  const std::lock_guard lock(current.mutex);
  return current.engine;
}

std::shared_ptr<Engine> current_engine(std::string_view function) {
  require_not_forked();
  std::shared_ptr<Engine> found = find_engine();
  if (!found) throw NotInitialized(fmt::format("{}: {}", function, no_session));
  return found;
}

EngineInUse::EngineInUse(OperationType type, const std::string& name) {
  require_not_forked();
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

void begin_step_epoch() noexcept { ++current.step_epoch; }

std::int64_t step_epoch() noexcept { return current.step_epoch; }

void start_session(const StartArguments& arguments) {
  require_not_forked();
  const Change change = begin_start();
  watch_forks();
  const bool over_mpi = arguments.communicator != nullptr;
  const bool in_job =
      !over_mpi && (started_by_kolorun() || (find_serverless_job() && !mpi_has_company()));
  std::shared_ptr<Engine> started = in_job                             ? start_in_job(arguments)
                                    : over_mpi || !is_single_process() ? start_over_mpi(arguments)
                                                                       : start_alone(arguments);
  begin_step_epoch();
  const std::lock_guard lock(current.mutex);
  current.arguments = arguments;
  current.in_job = in_job;
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

void allow_collectives() noexcept { current.runs_together = true; }

bool agreements_are_deferred() noexcept {
  return !current.runs_together.load(std::memory_order_relaxed) && is_elastic_job();
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
  if (forked()) return;
  // A second thread returns when the session has ended.
  const std::lock_guard ending_lock(current.ending);
  std::shared_ptr<Engine> ended = find_engine();
  if (!ended) return;
  ended->shut_down(clean, reason);
  if (in_job()) {
    if (clean && !ended->failed()) end_generation();
  } else {
    if (ended->lost_a_process() || ended->left_requests()) abort_at_exit(ended->left_requests());
    watch_at_exit(ended->links().other_processes());
  }
  current.usable = nullptr;  // before `uses` is read: see there
  const Change change = take_current();
  // It is destroyed here, because that calls MPI, which no other thread may do unasked.
  if (uses_end(ended)) return ended.reset();
  const std::lock_guard lock(current.mutex);
  current.stuck.push_back(std::move(ended));
}

}  // namespace kolo::internal::session
