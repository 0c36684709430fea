// SPDX-License-Identifier: Apache-2.0
#include "session/startup/start.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/failure.hpp"
#include "base/log.hpp"
#include "base/process_limits.hpp"
#include "kolo/error.hpp"
#include "kolo/version.hpp"
#include "messenger/fabric.hpp"
#include "node/memory_limits.hpp"
#include "node/random.hpp"
#include "session/job/job.hpp"
#include "session/read_settings.hpp"
#include "session/startup/cpu_links.hpp"
#include "session/startup/networks.hpp"
#include "transport/machine.hpp"

namespace kolo::internal::session {
namespace {

using rendezvous::Rendezvous;

/// The path for this session's file. From the second session of an elastic job on, it contains the
/// session's number, so that a session does not overwrite earlier files.
std::string path_of_session(const std::string& path) {
  const JobMembership& job = this_job().membership;
  const bool is_first = !job.is_elastic() || job.generation() == 1;
  return is_first || path == "stderr" ? path : diagnostics::path_of_session(path, job.generation());
}

/// Everything that a rank prepares alone, before it knows the other ranks.
struct Preparation {
  Settings settings{};
  HostRecord record{};
  std::optional<node::OwnMemory> memory{};
  std::string no_memory{};     // why `memory` is empty
  std::string no_addresses{};  // why there are no listeners, if the session may not need them
  transport::Listeners listeners{std::vector<transport::SocketAddress>()};
};

/// Opens the listeners for control messages. Only the lowest rank of a host listens, because the
/// others are leaves of the tree, which nobody calls.
void open_listeners(Preparation& own, const LocalPosition& position, int size,
                    std::string& problem) {
  const ControlInterface& interface = own.settings.control_interface;
  own.record.wants_sockets = !refuses_sockets(interface);
  if (!own.record.wants_sockets) return;
  // On a single host, sockets are only the fallback if its ranks cannot share memory.
  const bool several_hosts = position.local_size < size;
  const bool needed = several_hosts || interface.explicit_choice;
  attempt(needed ? problem : own.no_addresses, [&] {
    const bool loopback_is_enough = !several_hosts && own.record.machine != 0;
    const auto addresses =
        find_addresses(transport::list_interfaces(), interface, loopback_is_enough);
    if (size < 2 || position.local_rank != 0) return;
    const PortRange& range = own.settings.port_range;
    own.listeners = transport::Listeners(addresses, range);
    if (range.is_set() && own.listeners.sockets().empty())
      throw BackendError(
          fmt::format("cannot listen for control messages: no port of port_range "
                      "{}:{} is free",
                      range.first, range.last));
  });
}

void prepare_memory(Preparation& own, const LocalPosition& position, int size) {
  if (own.settings.cpu_operations == CpuOperations::mpi) return;
  attempt(own.no_memory, [&] {
    const HostMemory layout = lay_out_memory(position.local_size < size);
    std::weak_ptr<node::SharedHeap>& last_heap = this_job().last_heap;
    if (auto heap = last_heap.lock()) {
      own.memory.emplace(layout.bytes, std::move(heap));
    } else {
      own.memory.emplace(layout.bytes,
                         node::heap_bytes(node::memory_limits(), position.local_size));
    }
    last_heap = own.memory->heap();
    own.record.inbox = own.memory->inbox();
  });
}

/// Writes the values of rank 0 that all ranks use.
void fill_terms(const Settings& settings, HostRecord& record) {
  record.session = random_number();
  fill_random(record.seed);
  record.peer_timeout_ns = settings.peer_timeout.count();
}

/// Makes the preparations. They do not throw: a problem goes into the record, so that all ranks
/// learn of it. `mpi`: null in a session without MPI.
Preparation prepare(Rendezvous& world, const SessionOptions& options, const OverMpi* mpi) {
  Preparation own;
  HostRecord& record = own.record;
  std::string problem;
  attempt(problem, [&] {
    own.settings = read_settings(options);
    own.settings.timeline = path_of_session(own.settings.timeline);
    own.settings.statistics = path_of_session(own.settings.statistics);
  });
  if (mpi != nullptr)
    record.max_tag =
        static_cast<std::int32_t>(std::min<std::int64_t>(mpi->max_tag, own.settings.test_max_tag));
  const LocalPosition position =
      find_local_position(world.rank(), world.ranks_of_machine(), own.settings.test_ranks_per_host);
  record.lowest_rank_of_host = position.lowest_rank;
  record.cpu_operations = own.settings.cpu_operations;
  record.gpu_operations = own.settings.gpu_operations;
  record.test_ranks_per_host = own.settings.test_ranks_per_host;
  record.network = own.settings.network;
  if (position.local_size < world.size() && record.network == Network::fabric)
    attempt(problem, [&] {  // starts the search early, since it goes on during the rest
      messenger::find_fabric(own.settings.fabric_provider);
    });
  if (problem.empty()) {
    prepare_memory(own, position, world.size());
    attempt(problem, [&] {
      ::gethostname(record.host.data(), record.host.size() - 1);
      record.machine = transport::loopback_number();
      if (world.rank() == 0) fill_terms(own.settings, record);
    });
    open_listeners(own, position, world.size(), problem);
    write_addresses(own.listeners, record);
  }
  record.report = StartupReport::make(version, problem);
  return own;
}

Topology find_topology(int rank, std::span<const HostRecord> records) {
  std::vector<int> node_of;
  for (const HostRecord& record : records) node_of.push_back(record.lowest_rank_of_host);
  return make_topology(rank, std::move(node_of));
}

/// The memory that the ranks of this host share, null if they share none, and the results of all
/// hosts.
struct SharedMemorySetup {
  std::unique_ptr<node::LocalGroup> local_peers{};
  MemoryVerdict verdict{};
};

/// Collective. Throws InvalidArgument on every rank if one rank requires shared memory
/// (`cpu_operations=shm`) and cannot have it.
SharedMemorySetup set_up_memory(Rendezvous& world, std::span<const HostRecord> records,
                                const Topology& topology, Preparation& own) {
  SharedMemorySetup setup;
  std::string problem = why_no_memory(records, topology, topology.rank);
  if (!own.no_memory.empty()) problem = own.no_memory;
  if (problem.empty()) {
    node::FdExchangeGroup group{.index = topology.local_rank};
    for (const int rank : ranks_of_host(topology, topology.rank))
      group.inboxes.push_back(records[static_cast<std::size_t>(rank)].inbox);
    attempt(problem, [&] {
      setup.local_peers =
          std::make_unique<node::LocalGroup>(std::move(*own.memory), group, [&] { world.check(); });
    });
  }
  setup.verdict =
      judge_memory(records, gather(world, StartupReport::make(version, problem)), topology);
  throw_if_any(setup.verdict.errors);
  if (!setup.verdict.shared_by(topology.rank)) {
    // Freed now, because the sockets may need the file descriptors.
    setup.local_peers.reset();
    own.memory.reset();
  }
  return setup;
}

/// True if some ranks do not share memory. The same on all ranks.
bool needs_network(const Topology& topology, const MemoryVerdict& memory) {
  return topology.size > 1 &&
         !(memory.shared_by(topology.rank) && topology.local_size == topology.size);
}

/// The remaining resources of a rank. Missing ones are listed in `report`.
struct Setup {
  std::optional<Connections> connections{};      // empty: the session uses no sockets
  std::unique_ptr<messenger::Messenger> data{};  // null: MPI or memory carries data
  std::shared_ptr<diagnostics::Timeline> timeline{};
  SetupReport report{};
};

Setup set_up(Rendezvous& world, std::span<const HostRecord> records, const Topology& topology,
             const MemoryVerdict& memory, Preparation& own, const DataConnector& data) {
  Setup setup;
  const bool has_network = needs_network(topology, memory);
  const transport::Secret secret = secret_of_session(world.job_secret(), records);
  std::string no_connections;
  std::string no_data;
  // All ranks decide alike, since the records are the same everywhere.
  if (has_network && std::ranges::all_of(records, &HostRecord::wants_sockets)) {
    setup.connections.emplace();
    attempt(no_connections, [&] {
      *setup.connections =
          connect_hosts(topology, records, memory, secret, own.listeners, [&] { world.check(); });
      setup.connections->reconnect = {
          .rank = world.rank(),
          .secret = secret,
          .listeners = std::make_shared<transport::Listeners>(std::move(own.listeners))};
      no_connections = setup.connections->problem;
      setup.report.without_connection = MissingRanks::of(setup.connections->missing);
    });
  }
  std::string problem = has_network ? own.no_addresses : "";
  if (data.own != nullptr)
    attempt(no_data, setup.report.without_data,
            [&] { setup.data = data.connect([&] { world.check(); }); });
  attempt(problem, [&] {
    diagnostics::require_writable_statistics(own.settings.statistics, topology.rank);
    if (topology.rank == 0) diagnostics::StatusFile::refuse_other_files(own.settings.status_file);
    setup.timeline = diagnostics::open_timeline(own.settings.timeline, topology.rank);
  });
  setup.report.start = StartupReport::make(version, problem);
  setup.report.data = StartupReport::make(version, no_data);
  setup.report.connections = StartupReport::make(version, no_connections);
  return setup;
}

/// The transport over the connections; null without connections. The peers' timeouts begin here, so
/// it is made only when the session no longer waits for its slowest rank.
std::unique_ptr<transport::SocketTransport> make_sockets(const HostRecord& first,
                                                         std::optional<Connections> connections) {
  if (!connections) return nullptr;
  return std::make_unique<transport::SocketTransport>(
      std::move(connections->peers),
      transport::SocketOptions{.peer_timeout = std::chrono::nanoseconds(first.peer_timeout_ns),
                               .reconnect = std::move(connections->reconnect)});
}

/// Logs on the lowest rank of a host that the host shares no memory: a warning, unless a setting
/// asks for that.
void log_memory(std::span<const HostRecord> records, const Topology& topology,
                const MemoryVerdict& verdict) {
  if (verdict.shared_by(topology.rank) || topology.local_rank != 0 || topology.local_size < 2)
    return;
  const bool wanted = std::ranges::none_of(ranks_of_host(topology, topology.rank), [&](int rank) {
    return records[static_cast<std::size_t>(rank)].cpu_operations == CpuOperations::mpi;
  });
  log(wanted ? LogLevel::warning : LogLevel::info,
      "no shared memory on this host, so its ranks exchange all data over the network, which is "
      "slower: " +
          verdict.reasons[static_cast<std::size_t>(topology.rank)]);
}

void log_misspelled_variables() {
  for (const auto& [name, meant] : find_misspelled_variables())
    log(LogLevel::warning,
        fmt::format("Kolo does not read the variable {}; did you mean {}?", name, meant));
}

/// Warns during start-up if processor time is limited: once the limit is reached, only SIGXCPU
/// reports it.
void log_processor_time() {
  if (const std::string limit = limits_text({RLIMIT_CPU}); !limit.empty())
    log(LogLevel::warning,
        "this process will be ended when its threads have used a limited "
        "processor time" +
            limit);
}

void log_start(const Settings& settings, std::span<const HostRecord> records,
               const Topology& topology, const MemoryVerdict& memory) {
  set_log_rank(topology.rank);
  if (topology.rank == 0) {
    log_misspelled_variables();
    for (const std::string& text : settings.timeouts_out_of_order) log(LogLevel::warning, text);
  }
  log_processor_time();
  log_memory(records, topology, memory);
}

void log_lack_of_secret(const Rendezvous& world) {
  if (world.rank() == 0 && world.job_secret() == transport::Secret{})
    log(LogLevel::warning,
        "the job has no secret, so encryption does not protect data from those who can read the "
        "start of the session on the network: start the job with kolorun, or with torchrun or srun "
        "and KOLO_RENDEZVOUS_SECRET");
}

/// NCCL does not encrypt, so GPU tensors travel through host memory.
void prepare_encryption(std::span<const HostRecord> records, Settings& settings) {
  throw_if_any(find_obstacles_to_encryption(records));
  settings.gpu_operations = GpuOperations::staged;
}

void log_means(const StartupErrors& connection_errors, int rank, bool has_sockets) {
  if (!connection_errors.text.empty())
    log(rank == 0 ? LogLevel::warning : LogLevel::debug,
        "no sockets between hosts, so MPI is polled for control messages: " +
            connection_errors.text);
  if (has_sockets) log(LogLevel::info, "sockets between hosts carry control messages");
}

std::unique_ptr<CpuLinks> make_links(std::unique_ptr<OverMpi> mpi,
                                     std::span<const HostRecord> records, const Topology& topology,
                                     SharedMemorySetup& memory, Setup& setup) {
  if (mpi != nullptr) mpi->max_tag = std::ranges::min(records, {}, &HostRecord::max_tag).max_tag;
  return std::make_unique<CpuLinks>(std::move(mpi), std::move(setup.data), topology,
                                    std::move(memory.local_peers),
                                    make_sockets(records.front(), std::move(setup.connections)),
                                    memory.verdict.sharing_node_of(topology));
}

/// Connects the session to the job's server, so that the session notices interruptions and reports
/// the ranks that it waits for or misses.
void watch_membership(CpuLinks& links) {
  links.watch([] { return this_job().membership.find_interruption(); },
              [](const RankSet& ranks, const std::string& reason) {
                this_job().membership.report_awaited(ranks, reason);
              },
              [](const RankSet& ranks, const std::string& operation) {
                this_job().membership.report_missed(ranks, operation);
              });
}

}  // namespace

// The ranks exchange their results at four points: their records, the outcome of sharing memory,
// the outcome of connecting, and the outcome of making the engine. If connections of their own
// carry data, they also exchange the addresses at which they listen. All ranks derive the same
// decision from each exchange, so either all of them throw or none does. Between two exchanges a
// rank works alone, or with other ranks over sockets that time out, and keeps an error for the next
// exchange.
std::shared_ptr<Engine> start_engine(Rendezvous& world, const StartArguments& arguments,
                                     std::unique_ptr<OverMpi> mpi) {
  const bool has_mpi = mpi != nullptr;
  Preparation own = prepare(world, arguments.options, mpi.get());
  const std::vector<HostRecord> records = gather(world, own.record);
  throw_if_any(find_errors(records));
  const Topology topology = find_topology(world.rank(), records);

  SharedMemorySetup memory = set_up_memory(world, records, topology, own);
  const bool over_network = needs_network(topology, memory.verdict);
  if (!has_mpi) throw_if_any(find_needs_of_mpi(records, over_network));
  const bool is_encrypted = over_network && records.front().network == Network::encrypted;
  if (is_encrypted) prepare_encryption(records, own.settings);
  DataConnector data;
  if (over_network && needs_data_connections(records.front().network, has_mpi))
    data = listen_for_data(world, records, own.settings);
  Setup setup = set_up(world, records, topology, memory.verdict, own, data);

  const Verdict verdict = reach_verdict(gather(world, setup.report), has_mpi && !is_encrypted);
  throw_if_any(verdict.errors);
  if (!verdict.connection_errors.text.empty()) setup.connections.reset();
  set_log_level(own.settings.log_level);
  log_start(own.settings, records, topology, memory.verdict);
  log_means(verdict.connection_errors, topology.rank, setup.connections.has_value());
  if (is_encrypted) log_lack_of_secret(world);

  CpuLinks* links = nullptr;  // owned by the engine
  std::shared_ptr<Engine> engine;
  std::string problem;
  attempt(problem, [&] {
    std::unique_ptr<CpuLinks> made = make_links(std::move(mpi), records, topology, memory, setup);
    links = made.get();
    engine = std::make_shared<Engine>(own.settings, records.front().session, topology,
                                      std::move(made), arguments.gpu_libraries);
  });

  // After this check, no step can fail on one rank alone.
  check_all_ranks(world, problem);
  world.settle();
  if (!has_mpi) watch_membership(*links);
  engine->start();
  if (setup.timeline != nullptr) engine->start_timeline(setup.timeline);
  return engine;
}

}  // namespace kolo::internal::session
