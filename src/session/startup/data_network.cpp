// SPDX-License-Identifier: Apache-2.0
#include "session/startup/data_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "kolo/error.hpp"
#include "session/job/mpi_environment.hpp"
#include "session/startup/control_sockets.hpp"
#include "session/startup/gather.hpp"

namespace kolo::internal::session {
namespace {

/// Listens on the interfaces that control messages use, unless the setting forbids sockets.
std::unique_ptr<messenger::FabricListener> listen(const rendezvous::Rendezvous& world,
                                                  std::span<const HostRecord> records,
                                                  const Settings& settings) {
  const std::uint64_t machine = records.front().machine;
  const bool one_machine =
      machine != 0 && std::ranges::all_of(records, [=](const HostRecord& record) {
        return record.machine == machine;
      });
  const ControlInterface& interface = settings.control_interface;
  return messenger::listen_on_fabric(
      {.rank = world.rank(), .size = world.size(), .provider = settings.fabric_provider},
      find_addresses(transport::list_interfaces(),
                     refuses_sockets(interface) ? ControlInterface() : interface, one_machine));
}

}  // namespace

bool chooses_fabric(Network network, bool has_mpi) {
  return network == Network::fabric || (network == Network::automatic && !has_mpi);
}

DataListener listen_for_data(rendezvous::Rendezvous& world, std::span<const HostRecord> records,
                             const Settings& settings, bool has_mpi) {
  DataListener listener;
  DataAddresses mine;
  std::string problem;
  attempt(problem, [&] {
    listener.own = listen(world, records, settings);
    const std::vector<transport::SocketAddress> addresses = listener.own->addresses();
    mine.count = static_cast<std::uint32_t>(std::min(addresses.size(), HostRecord::max_addresses));
    std::copy_n(addresses.begin(), mine.count, mine.addresses.begin());
  });
  if (!problem.empty())
    problem = fmt::format("cannot exchange data with ranks that share no memory: {}{}", problem,
                          has_mpi            ? " (set KOLO_NETWORK=mpi to avoid libfabric)"
                          : built_with_mpi() ? " (start with mpirun to avoid libfabric)"
                                             : "");
  mine.report = StartupReport::make(version, problem);
  const std::vector<DataAddresses> all = gather(world, mine);
  std::vector<StartupReport> reports;
  const std::uint64_t own_machine = records[static_cast<std::size_t>(world.rank())].machine;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    reports.push_back(all[rank].report);
    // Another machine's loopback addresses cannot be reached from here.
    const bool same_machine = own_machine != 0 && records[rank].machine == own_machine;
    auto& usable = listener.addresses.emplace_back();
    const std::size_t count = std::min<std::size_t>(all[rank].count, HostRecord::max_addresses);
    for (std::size_t i = 0; i < count; ++i)
      if (same_machine || !all[rank].addresses[i].is_loopback())
        usable.push_back(all[rank].addresses[i]);
  }
  throw_if_any(collect_errors(reports));
  return listener;
}

}  // namespace kolo::internal::session
