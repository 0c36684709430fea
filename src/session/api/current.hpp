// SPDX-License-Identifier: Apache-2.0
// The session of the process, which the free functions of the public headers use.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/descriptor.hpp"
#include "kolo/error.hpp"
#include "kolo/session.hpp"
#include "session/engine/engine.hpp"
#include "session/startup/start.hpp"

namespace kolo::internal::session {

/// The engine of the open session. Throws NotInitialized, which names `function`, if there is no
/// session; InvalidArgument in a forked process. Keep the result for a short time only, because the
/// end of the session waits until it is released.
[[nodiscard]] std::shared_ptr<Engine> current_engine(std::string_view function);

/// Keeps the engine alive as the result of `current_engine` does, but at a lower cost: an atomic
/// counter instead of the mutex. Keep it for a short time only, for the same reason.
class EngineInUse {
 public:
  /// Throws as `current_engine` does, and as `require_collectives_allowed`. The message names the
  /// operation.
  EngineInUse(OperationType type, const std::string& name);
  ~EngineInUse();
  EngineInUse(EngineInUse&& other) noexcept : engine_(std::exchange(other.engine_, nullptr)) {}

  Engine* operator->() const { return engine_; }
  Engine& operator*() const { return *engine_; }

 private:
  Engine* engine_ = nullptr;
};

/// The engine of the open session; null if there is none, and in a forked process.
[[nodiscard]] std::shared_ptr<Engine> find_engine() noexcept;

void start_session(const StartArguments& arguments);
/// Starts a session with the arguments of the last one.
void restart_session();

/// `step_epoch` is the number of times that the ranks have restarted their count of steps: at each
/// start of a session, and when all ranks have joined. `begin_step_epoch` increments it. The driver
/// does so before the join completes, so a thread that has waited for the join reads the new
/// number.
void begin_step_epoch() noexcept;
[[nodiscard]] std::int64_t step_epoch() noexcept;
/// Keeps the largest number of passes that reduced gradients since `step_epoch` changed.
std::int64_t note_passes(std::int64_t passes) noexcept;
void note_failed_pass(bool failed) noexcept;

/// Ends the session of this rank and waits for the other ranks. Does nothing if there is no
/// session.
void end_session(bool clean, const std::string& reason);
/// Ends the session for all ranks, without waiting for them. Does nothing if there is none.
void abandon_session(const Error& why);

/// True in an elastic job before `elastic::run`. Other ranks may then be in another call, so the
/// ranks cannot compare arguments yet.
[[nodiscard]] bool agreements_are_deferred() noexcept;
/// Throws InvalidArgument if `agreements_are_deferred`. The message names the operation.
void require_collectives_allowed(std::string_view type, const std::string& name);

}  // namespace kolo::internal::session
