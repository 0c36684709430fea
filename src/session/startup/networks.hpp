// SPDX-License-Identifier: Apache-2.0
// Connects the ranks over networks: by sockets for control messages, and by sockets or libfabric
// for data, if MPI does not carry it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "messenger/data_listener.hpp"
#include "rendezvous/rendezvous.hpp"
#include "session/startup/host_record.hpp"
#include "transport/control/socket_transport.hpp"

namespace kolo::internal::session {

/// True if the setting is "none", which forbids sockets.
[[nodiscard]] bool refuses_sockets(const ControlInterface& interface);

/// The addresses at which this rank can be called, the best one first. `loopback_is_enough`: all
/// callers share this rank's loopback interface. Throws InvalidArgument, with the setting's name
/// and value, if the setting matches no interface of this host.
[[nodiscard]] std::vector<transport::SocketAddress> find_addresses(
    const std::vector<transport::Interface>& all, const ControlInterface& interface,
    bool loopback_is_enough);

/// Writes the addresses of the listeners into the record, as many as fit.
void write_addresses(const transport::Listeners& listeners, HostRecord& into);

/// For each rank, why it cannot call its parent in the tree according to the records. Empty if it
/// can, or reaches its parent through shared memory.
[[nodiscard]] std::vector<std::string> find_unreachable_parents(std::span<const HostRecord> records,
                                                                const Topology& topology,
                                                                const MemoryVerdict& memory);

/// The sockets of this rank along the edges of the tree that shared memory does not carry, or the
/// reason why some are missing. Either all of these edges get sockets or none does, because a
/// session that polls MPI for one edge gains nothing from sockets on the others.
struct Connections {
  std::vector<transport::SocketPeer> peers{};
  transport::ReconnectOptions reconnect{};  // with what they are made again; the caller sets it
  std::string problem{};
  std::vector<int> missing{};  // the ranks without a connection
};

/// Makes the connections. Collective, but with a timeout. Returns at once if the records show that
/// some rank cannot connect. `secret`: that of the session. `while_waiting` is called every few
/// milliseconds.
[[nodiscard]] Connections connect_hosts(const Topology& topology,
                                        std::span<const HostRecord> records,
                                        const MemoryVerdict& memory,
                                        const transport::Secret& secret,
                                        const transport::Listeners& listeners,
                                        const std::function<void()>& while_waiting);

/// True if connections of Kolo's own, and not MPI, are to carry data between ranks that do not
/// share memory.
[[nodiscard]] bool needs_data_connections(Network network, bool has_mpi);

/// This rank's listener, and the addresses at which all ranks listen.
struct DataConnector {
  std::unique_ptr<messenger::DataListener> own{};
  std::vector<std::vector<transport::SocketAddress>> addresses{};  // by rank, the best one first

  /// Collective. Throws BackendError, and the exceptions of `while_waiting`.
  [[nodiscard]] std::unique_ptr<messenger::Messenger> connect(
      const std::function<void()>& while_waiting) const {
    return own->connect(addresses, while_waiting);
  }
};

/// Collective. Throws InvalidArgument on every rank if one cannot listen.
[[nodiscard]] DataConnector listen_for_data(rendezvous::Rendezvous& world,
                                            std::span<const HostRecord> records,
                                            const Settings& settings);

}  // namespace kolo::internal::session
