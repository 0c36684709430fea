// How a session comes to be.
#pragma once

#include <memory>

#include "kolo/session.hpp"
#include "session/engine.hpp"

namespace kolo::session {

/// Collective over all ranks. Throws InvalidArgument on every rank if one cannot start.
[[nodiscard]] std::shared_ptr<Engine> start_engine(int argc, char** argv,
                                                   const SessionOptions& options);

}  // namespace kolo::session
