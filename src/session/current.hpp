// The one session of the process, behind the free functions of the public face.
#pragma once

#include <memory>
#include <string>

#include "kolo/session.hpp"
#include "session/engine.hpp"
#include "session/start.hpp"

namespace kolo::session {

/// Throws NotInitialized if there is no session, InvalidArgument in a forked process.
[[nodiscard]] std::shared_ptr<Engine> current_engine();

/// Null if there is none, and in a forked process.
[[nodiscard]] std::shared_ptr<Engine> find_engine() noexcept;

void start_session(const StartArguments& arguments);

/// Does nothing if there is none.
void end_session(bool clean, const std::string& reason);

}  // namespace kolo::session
