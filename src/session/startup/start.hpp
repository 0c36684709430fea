// SPDX-License-Identifier: Apache-2.0
// How a session comes to be.
#pragma once

#include <mpi.h>

#include <memory>

#include "kolo/session.hpp"
#include "rendezvous/rendezvous.hpp"
#include "session/engine/engine.hpp"

namespace kolo::internal::session {

/// What `init` was given.
struct StartArguments {
  int argc = 0;
  char** argv = nullptr;
  MPI_Comm comm = MPI_COMM_NULL;  // null: MPI_COMM_WORLD
  SessionOptions options{};
  GpuLibraries gpu_libraries{};
};

/// Collective over all ranks, after `start_mpi`. Throws InvalidArgument on every rank if one cannot
/// start.
[[nodiscard]] std::shared_ptr<Engine> start_engine(const StartArguments& arguments);

/// As `start_engine`, for the ranks of `world`; the session neither initializes MPI nor calls it.
/// Between hosts, libfabric carries data. Throws what `world` throws. `arguments.comm` is ignored.
[[nodiscard]] std::shared_ptr<Engine> start_engine_without_mpi(rendezvous::Rendezvous& world,
                                                               const StartArguments& arguments);

}  // namespace kolo::internal::session
