// SPDX-License-Identifier: Apache-2.0
// What other threads have the driver do with its own state: timelines and flight records.
#include <utility>

#include "kolo/error.hpp"
#include "session/engine/engine.hpp"

namespace kolo::internal::session {

void Engine::run_on_driver(const std::function<void()>& work) {
  require_outside_pass("");  // before `work_` is stored: nothing would take it back
  std::exception_ptr error;
  const std::function<void()> guarded = [&] {
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
  };
  const std::lock_guard one_at_a_time(asking_);
  // Release: the driver sees the whole work. `wait_until` then drives, or rings for the driver, and
  // returns only when the driver is done with the work, which lives on this stack.
  work_.store(&guarded, std::memory_order_release);
  wait_until([&] { return work_.load(std::memory_order_acquire) == nullptr; }, TimePoint::max());
  if (error) std::rethrow_exception(error);
}

void Engine::start_timeline(std::shared_ptr<diagnostics::Timeline> timeline) {
  run_on_driver([&] {
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

}  // namespace kolo::internal::session
