// SPDX-License-Identifier: Apache-2.0
// The session of the process, behind the free functions of the public headers.
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

/// Throws NotInitialized, which names the `function` that was called, if there is no session;
/// InvalidArgument in a forked process. Keep the result for a short time only: the end of the
/// session waits for it.
[[nodiscard]] std::shared_ptr<Engine> current_engine(std::string_view function);

/// Keeps the session alive, as a shared pointer does, but at a lower cost. Keep it for a short time
/// only: the end of the session waits for it.
class EngineInUse {
 public:
  /// Throws as `current_engine`. The message names the operation.
  EngineInUse(OperationType type, const std::string& name);
  ~EngineInUse();
  EngineInUse(EngineInUse&& other) noexcept : engine_(std::exchange(other.engine_, nullptr)) {}

  Engine* operator->() const { return engine_; }

 private:
  Engine* engine_ = nullptr;
};

/// Null if there is no session, and in a forked process.
[[nodiscard]] std::shared_ptr<Engine> find_engine() noexcept;

void start_session(const StartArguments& arguments);
/// Starts a session with the arguments of the last one.
void restart_session();

/// The number of times that the ranks began to count steps anew: at each start of a session, and
/// when all ranks have joined. The driver increments it before the join completes, so a thread that
/// has waited for the join reads the new number.
void begin_step_epoch() noexcept;
[[nodiscard]] std::int64_t step_epoch() noexcept;

/// Does nothing if there is no session.
void end_session(bool clean, const std::string& reason);
/// Ends the session for all ranks, without waiting for them. Does nothing if there is none.
void abandon_session(const Error& why);

/// True in an elastic job before `elastic::run`, where other ranks may be in another call.
[[nodiscard]] bool agreements_are_deferred() noexcept;
/// Throws InvalidArgument then; the message names the operation.
void require_collectives_allowed(std::string_view type, const std::string& name);

}  // namespace kolo::internal::session
