// SPDX-License-Identifier: Apache-2.0
// Starts a session together with the other ranks.
#pragma once

#include <memory>

#include "kolo/session.hpp"
#include "rendezvous/rendezvous.hpp"
#include "session/engine/engine.hpp"
#include "session/startup/over_mpi.hpp"

namespace kolo::internal::session {

/// The arguments of `init`.
struct StartArguments {
  int argc = 0;
  char** argv = nullptr;
  std::shared_ptr<const GivenCommunicator> communicator{};  // null: all ranks of the job
  SessionOptions options{};
  GpuLibraries gpu_libraries{};
};

/// Collective over the ranks of `world`. If `mpi` is null, the session does not call MPI, and
/// libfabric carries data between hosts. Throws InvalidArgument on every rank if one rank cannot
/// start, and the exceptions of `world`. Ignores `arguments.communicator`.
[[nodiscard]] std::shared_ptr<Engine> start_engine(rendezvous::Rendezvous& world,
                                                   const StartArguments& arguments,
                                                   std::unique_ptr<OverMpi> mpi = nullptr);

}  // namespace kolo::internal::session
