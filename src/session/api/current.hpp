// SPDX-License-Identifier: Apache-2.0
// The one session of the process, behind the free functions of the public face.
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
/// InvalidArgument in a forked process. Kept for a short time: the end of the session waits for it.
[[nodiscard]] std::shared_ptr<Engine> current_engine(std::string_view function);

/// The session, which exists at least as long as this. Cheaper than a shared pointer. For a short
/// time: the end of the session waits for it.
class EngineInUse {
 public:
  /// Throws as `current_engine`, and names the operation that it is for.
  EngineInUse(OperationType type, const std::string& name);
  ~EngineInUse();
  EngineInUse(EngineInUse&& other) noexcept : engine_(std::exchange(other.engine_, nullptr)) {}

  Engine* operator->() const { return engine_; }

 private:
  Engine* engine_ = nullptr;
};

/// Null if there is none, and in a forked process.
[[nodiscard]] std::shared_ptr<Engine> find_engine() noexcept;

void start_session(const StartArguments& arguments);
/// Another one with the arguments of the last that has started.
void restart_session();

/// How often the ranks began to count anew: at each start of a session, and when all ranks have
/// joined. The driver counts before the join is done, so a thread that has waited for it reads the
/// new number.
void begin_step_epoch() noexcept;
[[nodiscard]] std::int64_t step_epoch() noexcept;

/// Does nothing if there is none.
void end_session(bool clean, const std::string& reason);
/// Ends it for all ranks, without waiting for them. Does nothing if there is none.
void abandon_session(const Error& why);

/// From now on the ranks of an elastic job call the same: this one is in `elastic::run`.
void allow_collectives() noexcept;
/// True before that: other ranks may be in another call.
[[nodiscard]] bool agreements_are_deferred() noexcept;
/// Throws InvalidArgument then. `what`: the call, in words.
void require_collectives_allowed(std::string_view type, const std::string& name);

}  // namespace kolo::internal::session
