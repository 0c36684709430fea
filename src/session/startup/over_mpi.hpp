// SPDX-License-Identifier: Apache-2.0
// What a session has of MPI. A build without MPI has mpi_absent.cpp in its place.
#pragma once

#include <chrono>
#include <memory>

#include "messenger/messenger.hpp"
#include "transport/transport.hpp"

namespace kolo::internal::session {

class Engine;
struct GivenCommunicator;
struct StartArguments;

/// Control messages and data over MPI, where nothing better carries them.
class OverMpi {
 public:
  OverMpi() = default;
  OverMpi(const OverMpi&) = delete;
  OverMpi& operator=(const OverMpi&) = delete;
  virtual ~OverMpi() = default;

  [[nodiscard]] virtual transport::Transport& control() = 0;
  /// To be called once, when `max_tag` is the same on all ranks. `afterwards` as for MpiActivity.
  /// The result must not outlive this.
  [[nodiscard]] virtual std::unique_ptr<messenger::Messenger> carry_data(
      std::chrono::nanoseconds afterwards) const = 0;
  /// Requests may never complete, so what they are on is never freed.
  virtual void leak() = 0;

  int max_tag = 0;  // as for MpiMessenger
};

/// Collective over all ranks, after `start_mpi`. Throws as `start_engine`.
[[nodiscard]] std::shared_ptr<Engine> start_engine_over_mpi(const StartArguments& arguments);

}  // namespace kolo::internal::session
