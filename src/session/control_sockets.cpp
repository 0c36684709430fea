#include "session/control_sockets.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <exception>
#include <fstream>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "negotiation/tree.hpp"
#include "node/mpi_error.hpp"
#include "session/vote.hpp"
#include "transport/interfaces.hpp"
#include "transport/socket_meeting.hpp"

namespace kolo::session {
namespace {

using node::check_mpi;
using transport::SocketAddress;

constexpr std::chrono::seconds patience_to_connect{10};
constexpr std::size_t most_addresses = 8;
constexpr const char* no_sockets = "none";

/// What a rank tells all others.
struct Offer {
  std::array<char, 64> host{};
  std::uint64_t machine = 0;  // who has the same has the same loopback; 0: not known
  std::uint32_t count = 0;
  std::array<SocketAddress, most_addresses> addresses{};
};

/// What rank 0 decides.
struct Terms {
  transport::Secret secret{};
  std::int64_t peer_timeout_ns = 0;
};

std::uint64_t find_machine() {
  std::string boot;
  struct ::stat space {};
  if (!std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot) ||
      ::stat("/proc/self/ns/net", &space) != 0)
    return 0;
  return std::hash<std::string>()(fmt::format("{} {} {}", boot, space.st_dev, space.st_ino));
}

std::vector<SocketAddress> find_addresses(const ControlInterface& interface) {
  const std::vector<transport::Interface> all = transport::list_interfaces();
  std::vector<SocketAddress> addresses = transport::choose_addresses(all, interface.value);
  if (interface.value.empty()) {
    // The shortest way between the ranks of one machine.
    for (const transport::Interface& one : all)
      if (one.address.is_loopback()) addresses.insert(addresses.begin(), one.address);
  }
  addresses.resize(std::min(addresses.size(), most_addresses));
  return addresses;
}

Terms agree_on_terms(MPI_Comm world, std::chrono::nanoseconds peer_timeout) {
  Terms terms{.peer_timeout_ns = peer_timeout.count()};
  std::random_device random;
  for (std::byte& byte : terms.secret) byte = static_cast<std::byte>(random());
  check_mpi(MPI_Bcast(&terms, sizeof terms, MPI_BYTE, 0, world), "MPI_Bcast");
  return terms;
}

std::vector<Offer> exchange_offers(MPI_Comm world, int size,
                                   const std::vector<SocketAddress>& addresses) {
  Offer mine;
  ::gethostname(mine.host.data(), mine.host.size() - 1);
  mine.machine = find_machine();
  mine.count = static_cast<std::uint32_t>(addresses.size());
  std::ranges::copy(addresses, mine.addresses.begin());
  std::vector<Offer> offers(static_cast<std::size_t>(size));
  check_mpi(
      MPI_Allgather(&mine, sizeof mine, MPI_BYTE, offers.data(), sizeof mine, MPI_BYTE, world),
      "MPI_Allgather");
  return offers;
}

/// The loopback of another machine is not its own.
std::vector<SocketAddress> usable_addresses(const Offer& offer, const Offer& own) {
  const bool same_machine = offer.machine != 0 && offer.machine == own.machine;
  std::vector<SocketAddress> addresses;
  for (std::size_t i = 0; i < offer.count; ++i)
    if (same_machine || !offer.addresses[i].is_loopback()) addresses.push_back(offer.addresses[i]);
  return addresses;
}

/// Whom this rank reaches by sockets: by whom it is called, and whom it calls.
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

/// MPI may have to send what others still wait for before they come here.
void let_mpi_move(MPI_Comm world) {
  int found = 0;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world, &found, MPI_STATUS_IGNORE),
            "MPI_Iprobe");
}

}  // namespace

std::string find_problem(const ControlInterface& interface) {
  if (interface.value == no_sockets) return "";
  try {
    find_addresses(interface);
  } catch (const std::exception& error) {
    return fmt::format("{}={}: {}", interface.source, interface.value, error.what());
  }
  return "";
}

std::unique_ptr<transport::SocketTransport> connect_hosts(MPI_Comm world, const Topology& topology,
                                                          const Settings& settings,
                                                          std::uint64_t session,
                                                          bool shares_memory) {
  if (!on_all_ranks(world, settings.control_interface.value != no_sockets)) return nullptr;
  const Edges edges = find_edges(topology, shares_memory);
  const Terms terms = agree_on_terms(world, settings.peer_timeout);
  const transport::Listeners listeners(edges.children.empty()
                                           ? std::vector<SocketAddress>()
                                           : find_addresses(settings.control_interface));
  const std::vector<Offer> offers = exchange_offers(world, topology.size, listeners.addresses());
  const auto offer_of = [&](int rank) -> const Offer& {
    return offers[static_cast<std::size_t>(rank)];
  };
  std::vector<transport::Caller> callers;
  for (const int child : edges.children) callers.push_back({child, offer_of(child).host.data()});
  std::vector<transport::Callee> callees;
  if (edges.parent >= 0)
    callees.push_back({edges.parent, offer_of(edges.parent).host.data(),
                       usable_addresses(offer_of(edges.parent), offer_of(topology.rank))});

  transport::SocketMeeting meeting(topology.rank, terms.secret, listeners, std::move(callers),
                                   std::move(callees));
  const auto until = std::chrono::steady_clock::now() + patience_to_connect;
  while (!meeting.step(std::chrono::milliseconds(5)) && std::chrono::steady_clock::now() < until)
    let_mpi_move(world);
  const Complaints complaints = gather_complaints(world, meeting.problem());
  if (!complaints.text.empty()) {
    log(topology.rank == 0 ? LogLevel::warning : LogLevel::debug,
        "no sockets between hosts, so MPI is polled for control messages: " + complaints.text);
    return nullptr;
  }
  log(LogLevel::info, "sockets between hosts carry control messages");
  std::vector<transport::SocketPeer> peers;
  for (transport::Connection& connection : meeting.take())
    peers.push_back({connection.rank, offer_of(connection.rank).host.data(),
                     ranks_of_host(topology, connection.rank), std::move(connection.socket)});
  return std::make_unique<transport::SocketTransport>(
      std::move(peers),
      transport::SocketOptions{.session = session,
                               .peer_timeout = std::chrono::nanoseconds(terms.peer_timeout_ns)});
}

}  // namespace kolo::session
