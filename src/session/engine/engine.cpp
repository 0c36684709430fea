// SPDX-License-Identifier: Apache-2.0
// The calls of the program's threads. engine_driver.cpp runs the session.
#include "session/engine/engine.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/log.hpp"
#include "base/process_limits.hpp"
#include "kolo/error.hpp"
#include "negotiation/stall/explain.hpp"

namespace kolo::internal::session {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

/// The longest time that an exiting or unwinding thread waits for its pending operation. Then its
/// rank leaves the session, since other ranks may wait for operations that it will never submit. If
/// `stall_warning` is shorter, that limit applies.
constexpr nanoseconds max_unwinding = std::chrono::seconds(10);

negotiation::NegotiatorOptions negotiator_options(std::uint64_t session, const Topology& topology,
                                                  Links& links) {
  auto places = negotiation::build_tree(topology.node_of);
  return {.place = std::move(places[static_cast<std::size_t>(topology.rank)]),
          .session = session,
          .now = steady_clock::now(),
          .board = links.board()};
}

std::thread start_thread(std::function<void()> run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    throw BackendError(fmt::format("cannot start Kolo's background thread: {}{}", error.what(),
                                   limits_text({RLIMIT_NPROC, RLIMIT_AS, RLIMIT_STACK})));
  }
}

}  // namespace

Engine::Engine(Settings settings, std::uint64_t session, const Topology& topology,
               std::unique_ptr<Links> links, GpuLibraries gpu_libraries)
    : settings_(std::move(settings)),
      topology_(topology),
      links_(std::move(links)),
      devices_(links_->backend(), topology.rank, settings_, links_->bell(),
               std::move(gpu_libraries)),
      process_sets_(session, topology.rank, topology.size),
      queue_(topology.rank),
      recorder_(settings_, {.session = session, .rank = topology.rank, .size = topology.size}),
      progress_engine_(settings_, negotiator_options(session, topology, *links_), queue_, *links_,
                       devices_.backend(), launched_, recorder_, presence_, process_sets_),
      thread_(start_thread([this] { run(); })) {}

Engine::~Engine() {
  if (thread_.joinable()) stop_thread();
}

void Engine::start() {
  const std::lock_guard lock(mutex_);
  started_ = true;
  changed_.notify_all();
}

// ---- operations ----

OperationPtr Engine::submit(Submission&& submission, bool waits) {
  if (leaving_) throw ShutDown("this rank has left the session", submission.name, {topology_.rank});
  require_outside_pass(submission.name);
  if (submission.descriptor.device.type != DeviceType::cpu) limit_work_in_flight();
  presence_.submits();
  const Notice notice = notice_of(waits);
  OperationPtr operation = queue_.push(*this, submission, notice);
  announce(notice);
  return operation;
}

OperationPtr Engine::submit_again(const Repetition& repetition, bool waits) {
  if (leaving_ || in_pass()) return nullptr;
  if (repetition.ready != nullptr) limit_work_in_flight();
  presence_.submits();
  const Notice notice = notice_of(waits);
  OperationPtr operation = queue_.push_again(repetition, notice);
  if (operation != nullptr) announce(notice);
  return operation;
}

Notice Engine::notice_of(bool waits) {
  if (waits) return Notice::attended;
  Burst* const burst = Burst::of_this_thread();
  if (burst == nullptr) return Notice::rung;
  burst->add_to(shared_from_this());
  return Notice::gathered;
}

void Engine::announce(Notice notice) {
  // A thread that waits for its operation rings, or drives, in `wait_until`. While the session's
  // own thread takes a short sleep (`coalescing_`), no ring is needed: it finds the operation when
  // it wakes. But if another thread waits, that thread drives, and may sleep for long.
  if (notice == Notice::rung && (!coalescing_ || waiters_ > 0)) bell().ring();
}

void Engine::announce_burst() {
  // Rings in a short sleep, too: everything that the sleep would gather is there.
  if (queue_.show_gathered()) bell().ring();
}

void Burst::publish() {
  ready_.reset();
  if (engine_ != nullptr) engine_->announce_burst();
}

/// Otherwise a program that never waits for the GPU could queue work without bounds. Cannot
/// deadlock: the ranks launch batches in one order, and the first that the GPU has not finished
/// needs only batches that are launched, or submissions that this wait does not hold back.
void Engine::limit_work_in_flight() {
  while (launched_.bytes() > settings_.gpu_in_flight) {
    const std::shared_ptr<backend::gpu::Completion> oldest = launched_.oldest();
    if (oldest == nullptr) return;
    synchronize(oldest, TimePoint::max());
  }
}

void Engine::synchronize() {
  if (const std::shared_ptr<backend::gpu::Completion> newest = launched_.newest())
    synchronize(newest, TimePoint::max());
  if (const std::exception_ptr error = launched_.error()) std::rethrow_exception(error);
}

// ---- timelines and flight records ----

void Engine::start_timeline(std::shared_ptr<diagnostics::Timeline> timeline) {
  run_on_driver([&] {
    if (leaving_) throw ShutDown("this rank has left the session", "", {topology_.rank});
    if (recorder_.timeline() != nullptr)
      throw InvalidArgument("a timeline is being written already: stop it first", "",
                            {topology_.rank});
    recorder_.set_timeline(std::move(timeline));
  });
}

void Engine::stop_timeline() {
  std::shared_ptr<diagnostics::Timeline> timeline;
  run_on_driver([&] {
    timeline = recorder_.timeline();
    recorder_.set_timeline(nullptr);
  });
  if (timeline == nullptr) return;
  if (const std::string error = timeline->close(); !error.empty())
    throw BackendError(error, "", {topology_.rank});
}

std::string Engine::write_flight_record(const std::string& path) {
  std::string written;
  run_on_driver([&] { written = progress_engine_.write_flight_record(path); });
  return written;
}

// ---- the end of the session ----

void Engine::wait_or_leave(const detail::Operation& operation, std::string_view cause) {
  const nanoseconds patient = settings_.stall_warning.count() > 0
                                  ? std::min(settings_.stall_warning, max_unwinding)
                                  : max_unwinding;
  // The wait is in slices, so that a pause of this process counts as one slice at most.
  constexpr int slices = 10;
  for (int slice = 0; slice < slices; ++slice)
    if (wait(operation, steady_clock::now() + patient / slices)) return;
  const std::string reason =
      fmt::format("{} destroyed the future of {}, which was not done {} s later", cause,
                  negotiation::operation_in_words(operation.descriptor().type, operation.key()),
                  std::chrono::duration<double>(patient).count());
  leave(false, reason);
}

void Engine::leave(bool clean, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (leaving_) return;
  left_clean_ = clean;
  reason_of_leaving_ = reason;
  leaving_ =
      true;  // publishes both members to the driver, which reads this first, without the lock
  bell().ring();
}

void Engine::give_up(Failure why) {
  const std::lock_guard lock(mutex_);
  if (giving_up_) return;
  reason_to_give_up_ = std::move(why);
  giving_up_ = true;  // publishes the reason, as `leave` does
  bell().ring();
}

void Engine::leave_now(const std::string& reason, nanoseconds timeout) {
  leave(false, reason);
  wait_until([&] { return departed_.load(); }, steady_clock::now() + timeout);
}

bool Engine::leave_or_give_up(const std::string& reason, nanoseconds timeout) {
  leave(false, reason);
  if (wait_until([&] { return ended_.load(); }, steady_clock::now() + timeout)) return true;
  const int rank = topology_.rank;
  const std::string text = fmt::format("rank {} left the session: {}", rank, reason);
  give_up({FailureKind::peer_left, text, "", RankSet::of(rank)});
  return false;
}

void Engine::stop_thread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();  // the thread waits for this if `start` was never called
  }
  bell().wake(node::Listener::thread);  // `ring` wakes only the listener, which may be another
  thread_.join();
}

void Engine::shut_down(bool clean, const std::string& reason) {
  require_outside_pass("");  // before `leave`, which cannot be undone
  leave(clean, reason);
  if (auto newest = launched_.newest()) devices_.watch(std::move(newest));
  const nanoseconds patient = settings_.stall_warning.count() > 0
                                  ? settings_.stall_warning
                                  : nanoseconds(std::chrono::hours(1));
  std::string reported;
  while (!wait_until([&] { return ended_.load(); }, steady_clock::now() + patient)) {
    // A rank may work alone for hours after the others have left. The same report is not repeated.
    std::string doing = progress_engine_.describe_others(/*times=*/false);
    if (doing == std::exchange(reported, doing)) continue;
    log(LogLevel::warning,
        "this rank has left the session and still waits for other ranks to leave it:" +
            progress_engine_.describe_others(/*times=*/true));
  }
  // On the driver: another thread may be about to start or stop a timeline.
  run_on_driver([&] { recorder_.end(); });
  stop_thread();
  write_suppressed();
  // Operations that threads submitted during the last pass are still in the queue.
  for (detail::Operation* operation : queue_.close())
    operation->finish(std::make_exception_ptr(
        ShutDown("this rank has left the session", operation->key().name, {topology_.rank})));
}

}  // namespace kolo::internal::session
