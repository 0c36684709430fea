// SPDX-License-Identifier: Apache-2.0
// Starts a session together with the other ranks.
#pragma once

#include <chrono>
#include <memory>

#include "kolo/session.hpp"
#include "messenger/messenger.hpp"
#include "rendezvous/rendezvous.hpp"
#include "session/engine/engine.hpp"
#include "transport/transport.hpp"

namespace kolo::internal::session {

struct GivenCommunicator;

/// Carries control messages and data over MPI, where no better transport is available.
class OverMpi {
 public:
  OverMpi() = default;
  OverMpi(const OverMpi&) = delete;
  OverMpi& operator=(const OverMpi&) = delete;
  virtual ~OverMpi() = default;

  [[nodiscard]] virtual transport::Transport& control() = 0;
  /// Call it once, after `max_tag` has been set to the same value on all ranks. `afterwards` as for
  /// MpiActivity. The result must not outlive this object.
  [[nodiscard]] virtual std::unique_ptr<messenger::Messenger> carry_data(
      std::chrono::nanoseconds afterwards) const = 0;
  /// Gives up the communicators without freeing them: requests on them may never complete.
  virtual void leak() = 0;

  int max_tag = 0;  // the highest tag that MpiMessenger may use
};

/// The arguments of `init`.
struct StartArguments {
  int argc = 0;
  char** argv = nullptr;
  std::shared_ptr<const GivenCommunicator> communicator{};  // null: all ranks of the job
  SessionOptions options{};
  GpuLibraries gpu_libraries{};
};

/// Collective over the ranks of `world`. If `mpi` is null, the session does not call MPI, and
/// connections of their own carry data between hosts. Throws InvalidArgument on every rank if one
/// rank cannot start, and the exceptions of `world`. Ignores `arguments.communicator`.
[[nodiscard]] std::shared_ptr<Engine> start_engine(rendezvous::Rendezvous& world,
                                                   const StartArguments& arguments,
                                                   std::unique_ptr<OverMpi> mpi = nullptr);

/// A build without MPI compiles mpi_environment_absent.cpp instead. Collective over all ranks,
/// after `MpiEnvironment::start`. Throws as `start_engine`.
[[nodiscard]] std::shared_ptr<Engine> start_engine_over_mpi(const StartArguments& arguments);

}  // namespace kolo::internal::session
