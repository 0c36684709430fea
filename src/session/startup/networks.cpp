// SPDX-License-Identifier: Apache-2.0
#include "session/startup/networks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <iterator>
#include <utility>

#include "base/session_clock.hpp"
#include "kolo/error.hpp"
#include "messenger/fabric.hpp"
#include "negotiation/protocol/tree.hpp"
#include "session/job/mpi_environment.hpp"

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

/// Listens for data on the interfaces that control messages use, or, if the setting forbids sockets
/// for control messages, on the default interfaces.
std::unique_ptr<messenger::DataListener> listen(const rendezvous::Rendezvous& world,
                                                std::span<const HostRecord> records,
                                                const Settings& settings) {
  const std::uint64_t machine = records.front().machine;
  const bool one_machine =
      machine != 0 && std::ranges::all_of(records, [=](const HostRecord& record) {
        return record.machine == machine;
      });
  const ControlInterface& interface = settings.control_interface;
  const std::vector<SocketAddress> addresses =
      find_addresses(transport::list_interfaces(),
                     refuses_sockets(interface) ? ControlInterface() : interface, one_machine);
  const Network network = records.front().network;
  messenger::ListenOptions options{.rank = world.rank(),
                                   .size = world.size(),
                                   .secret = secret_of_session(world.job_secret(), records),
                                   .encrypts = network == Network::encrypted,
                                   .ports = settings.port_range};
  for (const HostRecord& record : records) options.hosts.push_back(read_string(record.host));
  return network == Network::fabric
             ? messenger::listen_on_fabric(options, settings.fabric_provider, addresses)
             : messenger::listen_with_sockets(options, addresses);
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
                          const MemoryVerdict& memory, const transport::Secret& secret,
                          const transport::Listeners& listeners,
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

  transport::PeerConnector connector(topology.rank, secret, listeners, std::move(callers),
                                     std::move(callees));
  PatientDeadline deadline(connect_timeout);
  while (!connector.step(std::chrono::milliseconds(5)) && !deadline.is_over()) while_waiting();
  Connections connections{.problem = connector.problem(), .missing = connector.missing()};
  for (transport::Connection& connection : connector.take()) {
    const int rank = connection.rank;
    connections.peers.push_back(
        {.rank = rank,
         .host = host_of(rank),
         .ranks_of_host = ranks_of_host(topology, rank),
         .socket = std::move(connection.socket),
         .keys = connection.keys,
         .is_called = rank == callee_of[static_cast<std::size_t>(topology.rank)],
         .addresses = usable_addresses(record_of(rank), record_of(topology.rank))});
  }
  return connections;
}

bool needs_data_connections(Network network, bool has_mpi) {
  return network != Network::mpi && (network != Network::automatic || !has_mpi);
}

DataConnector listen_for_data(rendezvous::Rendezvous& world, std::span<const HostRecord> records,
                              const Settings& settings) {
  DataConnector data;
  DataAddresses mine;
  std::string problem;
  attempt(problem, [&] {
    data.own = listen(world, records, settings);
    const std::vector<SocketAddress> addresses = data.own->addresses();
    mine.count = static_cast<std::uint32_t>(std::min(addresses.size(), HostRecord::max_addresses));
    std::copy_n(addresses.begin(), mine.count, mine.addresses.begin());
  });
  if (!problem.empty()) {
    const bool over_fabric = records.front().network == Network::fabric;
    problem = fmt::format("cannot exchange data with ranks that share no memory: {}{}", problem,
                          over_fabric ? " (KOLO_NETWORK=sockets does without libfabric)" : "");
  }
  mine.report = StartupReport::make(version, problem);
  const std::vector<DataAddresses> all = gather(world, mine);
  std::vector<StartupReport> reports;
  const std::uint64_t own_machine = records[static_cast<std::size_t>(world.rank())].machine;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    reports.push_back(all[rank].report);
    // Another machine's loopback addresses cannot be reached from here.
    const bool same_machine = own_machine != 0 && records[rank].machine == own_machine;
    auto& usable = data.addresses.emplace_back();
    const std::size_t count = std::min<std::size_t>(all[rank].count, HostRecord::max_addresses);
    for (std::size_t i = 0; i < count; ++i)
      if (same_machine || !all[rank].addresses[i].is_loopback())
        usable.push_back(all[rank].addresses[i]);
  }
  throw_if_any(collect_errors(reports));
  return data;
}

}  // namespace kolo::internal::session
