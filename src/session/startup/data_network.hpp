// SPDX-License-Identifier: Apache-2.0
// Connects the ranks over libfabric for data, if MPI does not carry it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "messenger/fabric.hpp"
#include "rendezvous/rendezvous.hpp"
#include "session/startup/host_record.hpp"

namespace kolo::internal::session {

/// True if libfabric is to carry data between ranks that do not share memory.
[[nodiscard]] bool chooses_fabric(Network network, bool has_mpi);

/// This rank's listener, and the addresses at which all ranks listen.
struct DataListener {
  std::unique_ptr<messenger::FabricListener> own{};
  std::vector<std::vector<transport::SocketAddress>> addresses{};  // by rank, the best one first

  /// Collective. Throws BackendError, and the exceptions of `while_waiting`.
  [[nodiscard]] std::unique_ptr<messenger::Messenger> connect(
      const transport::Secret& secret, const std::function<void()>& while_waiting) const {
    return own->connect(addresses, secret, while_waiting);
  }
};

/// Collective. Throws InvalidArgument on every rank if one cannot listen.
[[nodiscard]] DataListener listen_for_data(rendezvous::Rendezvous& world,
                                           std::span<const HostRecord> records,
                                           const Settings& settings, bool has_mpi);

}  // namespace kolo::internal::session
