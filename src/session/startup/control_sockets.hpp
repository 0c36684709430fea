// How the ranks come to have sockets along those edges of the tree that memory does not carry.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "session/startup/host_record.hpp"
#include "transport/socket_transport.hpp"

namespace kolo::internal::session {

/// True if the setting does without sockets.
[[nodiscard]] bool refuses_sockets(const ControlInterface& interface);

/// Where this rank can be called, the best address first; `several_hosts`: not by ranks of this one
/// only. Throws InvalidArgument, with the setting's name and value, if it cannot be used here.
[[nodiscard]] std::vector<transport::SocketAddress> find_addresses(
    const ControlInterface& interface, bool several_hosts);

/// The host and the addresses of this rank, at most as many as there is room for.
void describe_host(const transport::Listeners& listeners, HostRecord& into);

/// The connections of this rank that its place in the tree needs; or why it has not all of them.
struct Connections {
  std::vector<transport::SocketPeer> peers{};
  std::string problem{};
};

/// All ranks at once. `shares_memory`: with the ranks of this host. `while_waiting` is called every
/// few milliseconds.
[[nodiscard]] Connections connect_hosts(const Topology& topology,
                                        std::span<const HostRecord> records, bool shares_memory,
                                        const transport::Listeners& listeners,
                                        const std::function<void()>& while_waiting);

}  // namespace kolo::internal::session
