// SPDX-License-Identifier: Apache-2.0
// How the ranks come to have sockets along those edges of the tree that memory does not carry:
// along all or none, because a session that polls MPI for one edge gains nothing from the others.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "session/startup/host_record.hpp"
#include "transport/socket_transport.hpp"

namespace kolo::internal::session {

/// True if the setting does without sockets.
[[nodiscard]] bool refuses_sockets(const ControlInterface& interface);

/// Where this rank can be called, the best address first. `loopback_is_enough`: all ranks that call
/// are known to have the same. Throws InvalidArgument, with the setting's name and value, if it
/// cannot be used here.
[[nodiscard]] std::vector<transport::SocketAddress> find_addresses(
    const std::vector<transport::Interface>& all, const ControlInterface& interface,
    bool loopback_is_enough);

/// The addresses of this rank, at most as many as there is room for.
void write_addresses(const transport::Listeners& listeners, HostRecord& into);

/// By rank: why it cannot call its parent in the tree as far as the records say; empty if it can,
/// or reaches it through memory.
[[nodiscard]] std::vector<std::string> find_unreachable_parents(std::span<const HostRecord> records,
                                                                const Topology& topology,
                                                                const MemoryVerdict& memory);

/// The connections of this rank that its place in the tree needs; or why it has not all of them.
struct Connections {
  std::vector<transport::SocketPeer> peers{};
  std::string problem{};
  std::vector<int> missing{};  // ranks
};

/// All ranks at once; none waits if one is known to be unable. `while_waiting` is called every few
/// milliseconds.
[[nodiscard]] Connections connect_hosts(const Topology& topology,
                                        std::span<const HostRecord> records,
                                        const MemoryVerdict& memory,
                                        const transport::Listeners& listeners,
                                        const std::function<void()>& while_waiting);

}  // namespace kolo::internal::session
