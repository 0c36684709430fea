// SPDX-License-Identifier: Apache-2.0
// A session's use of MPI. A build without MPI compiles mpi_absent.cpp instead.
#pragma once

#include <chrono>
#include <memory>

#include "messenger/messenger.hpp"
#include "transport/transport.hpp"

namespace kolo::internal::session {

class Engine;
struct GivenCommunicator;
struct StartArguments;

/// Carries control messages and data over MPI, where no better transport is available.
class OverMpi {
 public:
  OverMpi() = default;
  OverMpi(const OverMpi&) = delete;
  OverMpi& operator=(const OverMpi&) = delete;
  virtual ~OverMpi() = default;

  [[nodiscard]] virtual transport::Transport& control() = 0;
  /// Call it once, when `max_tag` is the same on all ranks. `afterwards` as for MpiActivity. The
  /// result must not outlive this object.
  [[nodiscard]] virtual std::unique_ptr<messenger::Messenger> carry_data(
      std::chrono::nanoseconds afterwards) const = 0;
  /// Gives up the communicators without freeing them: requests on them may never complete.
  virtual void leak() = 0;

  int max_tag = 0;  // the highest tag that MpiMessenger may use
};

/// Collective over all ranks, after `MpiEnvironment::start`. Throws as `start_engine`.
[[nodiscard]] std::shared_ptr<Engine> start_engine_over_mpi(const StartArguments& arguments);

}  // namespace kolo::internal::session
