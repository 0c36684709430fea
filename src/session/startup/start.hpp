// SPDX-License-Identifier: Apache-2.0
// How a session comes to be.
#pragma once

#include <memory>

#include "kolo/session.hpp"
#include "rendezvous/rendezvous.hpp"
#include "session/engine/engine.hpp"
#include "session/startup/over_mpi.hpp"

namespace kolo::internal::session {

/// What `init` was given.
struct StartArguments {
  int argc = 0;
  char** argv = nullptr;
  std::shared_ptr<const GivenCommunicator> communicator{};  // null: all ranks
  SessionOptions options{};
  GpuLibraries gpu_libraries{};
};

/// Collective over the ranks of `world`. Without `mpi` the session neither initializes MPI nor
/// calls it; between hosts, libfabric carries data. Throws InvalidArgument on every rank if one
/// cannot start, and what `world` throws. `arguments.communicator` is ignored.
[[nodiscard]] std::shared_ptr<Engine> start_engine(rendezvous::Rendezvous& world,
                                                   const StartArguments& arguments,
                                                   std::unique_ptr<OverMpi> mpi = nullptr);

}  // namespace kolo::internal::session
