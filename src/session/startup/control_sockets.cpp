// SPDX-License-Identifier: Apache-2.0
#include "session/startup/control_sockets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <iterator>
#include <utility>

#include "kolo/error.hpp"
#include "negotiation/protocol/tree.hpp"

namespace kolo::internal::session {
namespace {

using transport::SocketAddress;

constexpr std::chrono::seconds connect_timeout{10};

/// The callee's addresses that this rank can call: loopback addresses only on the same machine.
std::vector<SocketAddress> usable_addresses(const HostRecord& callee, const HostRecord& own) {
  const bool same_machine = callee.machine != 0 && callee.machine == own.machine;
  std::vector<SocketAddress> addresses;
  for (std::size_t i = 0; i < callee.address_count; ++i)
    if (same_machine || !callee.addresses[i].is_loopback())
      addresses.push_back(callee.addresses[i]);
  return addresses;
}

/// For each rank, the rank that it calls: its parent in the tree. -1 for the root, and if shared
/// memory carries the edge to the parent.
std::vector<int> find_callees(const Topology& topology, const MemoryVerdict& memory) {
  std::vector<int> callees;
  const auto node_of = [&](int rank) { return topology.node_of[static_cast<std::size_t>(rank)]; };
  int rank = 0;
  for (const negotiation::TreePosition& place : negotiation::build_tree(topology.node_of)) {
    const bool by_memory =
        place.parent >= 0 && memory.shared_by(rank) && node_of(place.parent) == node_of(rank);
    callees.push_back(by_memory ? -1 : place.parent);
    ++rank;
  }
  return callees;
}

}  // namespace

bool refuses_sockets(const ControlInterface& interface) { return interface.value == "none"; }

std::vector<SocketAddress> find_addresses(const std::vector<transport::Interface>& all,
                                          const ControlInterface& interface,
                                          bool loopback_is_enough) {
  try {
    std::vector<SocketAddress> addresses;
    // Loopback comes first: it is the fastest path between the ranks of one machine.
    if (interface.value.empty())
      for (const transport::Interface& one : all)
        if (one.address.is_loopback()) addresses.push_back(one.address);
    if (!loopback_is_enough || !interface.value.empty())
      std::ranges::copy(transport::choose_addresses(all, interface.value),
                        std::back_inserter(addresses));
    addresses.resize(std::min(addresses.size(), HostRecord::max_addresses));
    return addresses;
  } catch (const std::exception& error) {
    throw InvalidArgument(
        fmt::format("{}={}: {}", interface.source, interface.value, error.what()));
  }
}

void write_addresses(const transport::Listeners& listeners, HostRecord& into) {
  const std::vector<SocketAddress>& addresses = listeners.addresses();
  into.address_count =
      static_cast<std::uint32_t>(std::min(addresses.size(), HostRecord::max_addresses));
  std::copy_n(addresses.begin(), into.address_count, into.addresses.begin());
}

std::vector<std::string> find_unreachable_parents(std::span<const HostRecord> records,
                                                  const Topology& topology,
                                                  const MemoryVerdict& memory) {
  std::vector<std::string> problems;
  for (const int callee : find_callees(topology, memory)) {
    std::string problem;
    if (callee >= 0) {
      const HostRecord& record = records[static_cast<std::size_t>(callee)];
      if (usable_addresses(record, records[problems.size()]).empty())
        problem = fmt::format("cannot reach rank {} on host {} (it has no reachable address)",
                              callee, read_string(record.host));
    }
    problems.push_back(std::move(problem));
  }
  return problems;
}

Connections connect_hosts(const Topology& topology, std::span<const HostRecord> records,
                          const MemoryVerdict& memory, const transport::Listeners& listeners,
                          const std::function<void()>& while_waiting) {
  const auto record_of = [&](int rank) -> const HostRecord& {
    return records[static_cast<std::size_t>(rank)];
  };
  const auto host_of = [&](int rank) { return read_string(record_of(rank).host); };
  // If any rank is known to be unable to connect, none tries, so that no rank waits in vain.
  const std::vector<std::string> unreachable = find_unreachable_parents(records, topology, memory);
  const std::vector<int> callee_of = find_callees(topology, memory);
  if (!std::ranges::all_of(unreachable, &std::string::empty)) {
    const std::string& own = unreachable[static_cast<std::size_t>(topology.rank)];
    if (own.empty()) return {};
    return {.problem = own, .missing = {callee_of[static_cast<std::size_t>(topology.rank)]}};
  }
  std::vector<transport::Caller> callers;
  for (int rank = 0; rank < topology.size; ++rank)
    if (callee_of[static_cast<std::size_t>(rank)] == topology.rank)
      callers.push_back({rank, host_of(rank)});
  std::vector<transport::Callee> callees;
  if (const int callee = callee_of[static_cast<std::size_t>(topology.rank)]; callee >= 0)
    callees.push_back(
        {callee, host_of(callee), usable_addresses(record_of(callee), record_of(topology.rank))});

  transport::PeerConnector connector(topology.rank, records.front().secret, listeners,
                                     std::move(callers), std::move(callees));
  const auto until = std::chrono::steady_clock::now() + connect_timeout;
  while (!connector.step(std::chrono::milliseconds(5)) && std::chrono::steady_clock::now() < until)
    while_waiting();
  Connections connections{.problem = connector.problem(), .missing = connector.missing()};
  for (transport::Connection& connection : connector.take())
    connections.peers.push_back({connection.rank, host_of(connection.rank),
                                 ranks_of_host(topology, connection.rank),
                                 std::move(connection.socket)});
  return connections;
}

}  // namespace kolo::internal::session
