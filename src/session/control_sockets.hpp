// How the ranks come to have sockets along those edges of the tree that memory does not carry.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>

#include "session/settings.hpp"
#include "session/topology.hpp"
#include "transport/socket_transport.hpp"

namespace kolo::session {

/// Why the setting cannot be used on this host, with its name and value; empty if it can.
[[nodiscard]] std::string find_problem(const ControlInterface& interface);

/// Collective. Rank 0's `peer_timeout` holds for all. Null on all ranks if a rank has chosen to do
/// without or an edge cannot be opened: then rank 0 warns, with the ranks and the reason.
/// `shares_memory`: with the ranks of this host.
[[nodiscard]] std::unique_ptr<transport::SocketTransport> connect_hosts(MPI_Comm world,
                                                                        const Topology& topology,
                                                                        const Settings& settings,
                                                                        std::uint64_t session,
                                                                        bool shares_memory);

}  // namespace kolo::session
