#include "session/startup/control_sockets.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <fstream>
#include <iterator>
#include <utility>

#include "kolo/error.hpp"
#include "negotiation/protocol/tree.hpp"

namespace kolo::internal::session {
namespace {

using transport::SocketAddress;

constexpr std::chrono::seconds connect_timeout{10};

/// The kernel and the network namespace: loopback is the same for all that are in both.
std::uint64_t find_machine() {
  std::string boot;
  struct ::stat space {};
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  if (!std::getline(file, boot) || ::stat("/proc/self/ns/net", &space) != 0) return 0;
  return std::hash<std::string>()(fmt::format("{} {} {}", boot, space.st_dev, space.st_ino));
}

/// The loopback of another machine is not its own.
std::vector<SocketAddress> usable_addresses(const HostRecord& callee, const HostRecord& own) {
  const bool same_machine = callee.machine != 0 && callee.machine == own.machine;
  std::vector<SocketAddress> addresses;
  for (std::size_t i = 0; i < callee.address_count; ++i)
    if (same_machine || !callee.addresses[i].is_loopback())
      addresses.push_back(callee.addresses[i]);
  return addresses;
}

/// The ranks that this one reaches by sockets: those that call it, and the one that it calls.
struct Edges {
  std::vector<int> children{};
  int parent = -1;
};

Edges find_edges(const Topology& topology, bool shares_memory) {
  const auto own = static_cast<std::size_t>(topology.rank);
  const auto needs_socket = [&](int rank) {
    return !shares_memory ||
           topology.node_of[static_cast<std::size_t>(rank)] != topology.node_of[own];
  };
  const negotiation::TreePosition place = negotiation::build_tree(topology.node_of)[own];
  Edges edges;
  for (const negotiation::Child& child : place.children)
    if (needs_socket(child.rank)) edges.children.push_back(child.rank);
  if (place.parent >= 0 && needs_socket(place.parent)) edges.parent = place.parent;
  return edges;
}

}  // namespace

bool refuses_sockets(const ControlInterface& interface) { return interface.value == "none"; }

std::vector<SocketAddress> find_addresses(const ControlInterface& interface, bool several_hosts) {
  try {
    const std::vector<transport::Interface> all = transport::list_interfaces();
    std::vector<SocketAddress> addresses;
    // Loopback is the shortest way between the ranks of one machine.
    if (interface.value.empty())
      for (const transport::Interface& one : all)
        if (one.address.is_loopback()) addresses.push_back(one.address);
    if (several_hosts || !interface.value.empty())
      std::ranges::copy(transport::choose_addresses(all, interface.value),
                        std::back_inserter(addresses));
    addresses.resize(std::min(addresses.size(), HostRecord::max_addresses));
    return addresses;
  } catch (const std::exception& error) {
    throw InvalidArgument(
        fmt::format("{}={}: {}", interface.source, interface.value, error.what()));
  }
}

void describe_host(const transport::Listeners& listeners, HostRecord& into) {
  ::gethostname(into.host.data(), into.host.size() - 1);
  into.machine = find_machine();
  const std::vector<SocketAddress>& addresses = listeners.addresses();
  into.address_count =
      static_cast<std::uint32_t>(std::min(addresses.size(), HostRecord::max_addresses));
  std::copy_n(addresses.begin(), into.address_count, into.addresses.begin());
}

Connections connect_hosts(const Topology& topology, std::span<const HostRecord> records,
                          bool shares_memory, const transport::Listeners& listeners,
                          const std::function<void()>& while_waiting) {
  const auto record_of = [&](int rank) -> const HostRecord& {
    return records[static_cast<std::size_t>(rank)];
  };
  const auto host_of = [&](int rank) { return read_string(record_of(rank).host); };
  const Edges edges = find_edges(topology, shares_memory);
  // Nobody waits for what cannot come.
  if (!edges.children.empty() && listeners.addresses().empty())
    return {.problem = "has no address at which it can be called"};
  std::vector<transport::Caller> callers;
  for (const int child : edges.children) callers.push_back({child, host_of(child)});
  std::vector<transport::Callee> callees;
  if (edges.parent >= 0)
    callees.push_back({edges.parent, host_of(edges.parent),
                       usable_addresses(record_of(edges.parent), record_of(topology.rank))});

  transport::PeerConnector connector(topology.rank, records.front().secret, listeners,
                                     std::move(callers), std::move(callees));
  const auto until = std::chrono::steady_clock::now() + connect_timeout;
  while (!connector.step(std::chrono::milliseconds(5)) && std::chrono::steady_clock::now() < until)
    while_waiting();
  Connections connections{.problem = connector.problem()};
  for (transport::Connection& connection : connector.take())
    connections.peers.push_back({connection.rank, host_of(connection.rank),
                                 ranks_of_host(topology, connection.rank),
                                 std::move(connection.socket)});
  return connections;
}

}  // namespace kolo::internal::session
