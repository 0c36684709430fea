#include "session/startup/start.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kolo/version.hpp"
#include "node/error_codes.hpp"
#include "session/startup/control_sockets.hpp"
#include "session/startup/cpu_links.hpp"
#include "session/startup/host_memory.hpp"

namespace kolo::internal::session {
namespace {

using node::check_mpi;

/// Runs `work`; an exception becomes the `problem`, unless there is one already. A rank must not
/// leave start-up alone: the others would wait for it in their next call of MPI.
template <typename Work>
void attempt(std::string& problem, Work work) {
  try {
    work();
  } catch (const std::exception& error) {
    if (problem.empty()) problem = error.what();
  }
}

/// One from each rank.
template <typename Record>
std::vector<Record> gather(MPI_Comm world, const Record& mine) {
  int size = 1;
  MPI_Comm_size(world, &size);
  std::vector<Record> all(static_cast<std::size_t>(size));
  check_mpi(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, world),
            "MPI_Allgather");
  return all;
}

/// Throws InvalidArgument on every rank if any has a problem.
void check_all_ranks(MPI_Comm world, const std::string& problem) {
  throw_if_any(collect_errors(gather(world, StartupReport::make(version, problem))));
}

/// MPI may have to send what others still wait for before they come to where this rank is.
void let_mpi_progress(MPI_Comm world) {
  int found = 0;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world, &found, MPI_STATUS_IGNORE),
            "MPI_Iprobe");
}

EngineOptions engine_options(const Settings& settings, std::uint64_t session) {
  return {.negotiation = {.session = session,
                          .fusion_threshold = settings.fusion_threshold,
                          .cache_capacity = settings.cache_capacity,
                          .stall_warning = settings.stall_warning,
                          .stall_shutdown = settings.stall_shutdown,
                          .plan_replay = settings.plan_replay},
          .recording = {.events = static_cast<std::size_t>(settings.flight_recorder),
                        .directory = settings.flight_recorder_dir,
                        .signal = settings.flight_recorder_signal,
                        .statistics = settings.statistics},
          .gpu = {.operations = settings.gpu_operations,
                  .nccl = {.init_timeout = settings.nccl_timeout}}};
}

/// MPI may keep a message until it has a connection and is called again, and from now on it may not
/// be called. Connections that were made for the first barrier carry the second at once.
void settle(MPI_Comm world) {
  for (int i = 0; i < 2; ++i) check_mpi(MPI_Barrier(world), "MPI_Barrier");
}

/// More than that cannot be used: the heaps take memory only for what is in them.
std::size_t physical_memory() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// What a rank makes by itself, before it knows of the others.
struct Preparation {
  int rank = 0;
  Settings settings{};
  HostRecord record{};
  std::optional<node::OwnMemory> memory{};
  std::string no_memory{};     // why there is none
  std::string no_addresses{};  // why the interfaces cannot be used, if that was no choice of ours
  transport::Listeners listeners{std::vector<transport::SocketAddress>()};
};

/// Only the lowest rank of a host is called: the others are leaves of the tree.
void open_listeners(Preparation& own, const LocalPosition& position, int size,
                    std::string& problem) {
  const ControlInterface& interface = own.settings.control_interface;
  own.record.wants_sockets = !refuses_sockets(interface);
  if (!own.record.wants_sockets || size == 1) return;
  // On a single host they are used only if its memory cannot be.
  const bool several_hosts = position.local_size < size;
  const bool needed = several_hosts || interface.explicit_choice;
  attempt(needed ? problem : own.no_addresses, [&] {
    const auto addresses = find_addresses(interface, several_hosts);
    if (position.local_rank == 0) own.listeners = transport::Listeners(addresses);
  });
}

void prepare_memory(Preparation& own, const LocalPosition& position, int size) {
  if (own.settings.cpu_operations == CpuOperations::mpi) return;
  attempt(own.no_memory, [&] {
    const HostMemory layout = lay_out_memory(position.local_size, position.local_size < size);
    own.memory.emplace(layout.bytes, physical_memory());
    own.record.inbox = own.memory->inbox();
  });
}

/// Rank 0's part, which holds for all.
void fill_terms(const Settings& settings, HostRecord& record) {
  std::random_device random;
  record.session = (std::uint64_t{random()} << 32) | random();
  for (std::byte& byte : record.secret) byte = static_cast<std::byte>(random());
  record.peer_timeout_ns = settings.peer_timeout.count();
  record.host_allreduce = settings.host_allreduce;
}

Preparation prepare(MPI_Comm world, const SessionOptions& options) {
  Preparation own;
  HostRecord& record = own.record;
  int size = 1;
  MPI_Comm_rank(world, &own.rank);
  MPI_Comm_size(world, &size);
  std::string problem;
  attempt(problem, [&] { own.settings = read_settings(options); });
  const LocalPosition position = find_local_position(world, own.settings.test_ranks_per_host);
  record.lowest_rank_of_host = position.lowest_rank;
  record.cpu_operations = own.settings.cpu_operations;
  record.test_ranks_per_host = own.settings.test_ranks_per_host;
  if (problem.empty()) {
    prepare_memory(own, position, size);
    open_listeners(own, position, size, problem);
    attempt(problem, [&] {
      describe_host(own.listeners, record);
      if (own.rank == 0) fill_terms(own.settings, record);
    });
  }
  record.report = StartupReport::make(version, problem);
  return own;
}

Topology find_topology(int rank, std::span<const HostRecord> records) {
  std::vector<int> node_of;
  for (const HostRecord& record : records) node_of.push_back(record.lowest_rank_of_host);
  return make_topology(rank, std::move(node_of));
}

/// What ranks make together, each as far as it comes.
struct Setup {
  std::unique_ptr<node::LocalGroup> neighbors{};
  std::unique_ptr<transport::SocketTransport> sockets{};
  std::shared_ptr<diagnostics::Timeline> timeline{};
  SetupReport report{};
};

/// The problem, or "".
std::string setup_shared_memory(MPI_Comm world, std::span<const HostRecord> records,
                                const Topology& topology, Preparation& own,
                                std::unique_ptr<node::LocalGroup>& neighbors) {
  node::FdExchangeGroup group{.index = topology.local_rank};
  for (const int rank : ranks_of_host(topology, topology.rank))
    group.inboxes.push_back(records[static_cast<std::size_t>(rank)].inbox);
  std::string problem;
  attempt(problem, [&] {
    neighbors = std::make_unique<node::LocalGroup>(std::move(*own.memory), group,
                                                   [=] { let_mpi_progress(world); });
  });
  return problem;
}

/// The problem, or "". Whether there are to be sockets is the same on all ranks.
std::string setup_sockets(MPI_Comm world, std::span<const HostRecord> records,
                          const Topology& topology, const Preparation& own, bool shares_memory,
                          std::unique_ptr<transport::SocketTransport>& sockets) {
  std::string problem;
  attempt(problem, [&] {
    Connections connections = connect_hosts(topology, records, shares_memory, own.listeners,
                                            [=] { let_mpi_progress(world); });
    problem = connections.problem;
    sockets = std::make_unique<transport::SocketTransport>(
        std::move(connections.peers),
        transport::SocketOptions{
            .session = records.front().session,
            .peer_timeout = std::chrono::nanoseconds(records.front().peer_timeout_ns)});
  });
  return problem;
}

Setup set_up(MPI_Comm world, std::span<const HostRecord> records, const Topology& topology,
             Preparation& own) {
  Setup setup;
  std::string no_memory = why_no_memory(records, topology, topology.rank);
  const bool expects_memory = no_memory.empty();
  const bool has_network =
      topology.size > 1 && !(expects_memory && topology.local_size == topology.size);
  const bool wants_sockets =
      has_network && std::ranges::all_of(records, &HostRecord::wants_sockets);

  if (!own.no_memory.empty()) no_memory = own.no_memory;
  if (no_memory.empty())
    no_memory = setup_shared_memory(world, records, topology, own, setup.neighbors);
  std::string no_connections;
  if (wants_sockets)
    no_connections = setup_sockets(world, records, topology, own, expects_memory, setup.sockets);
  // Edges that memory was to carry have no sockets, so those of the others are of no use.
  if (wants_sockets && expects_memory && no_connections.empty()) no_connections = no_memory;

  std::string problem = has_network ? own.no_addresses : "";
  attempt(problem, [&] {
    setup.timeline = diagnostics::open_timeline(own.settings.timeline, topology.rank);
  });
  setup.report = {StartupReport::make(version, problem), StartupReport::make(version, no_memory),
                  StartupReport::make(version, no_connections)};
  return setup;
}

/// Gives up what another rank could not set up.
void follow(const Verdict& verdict, int rank, Setup& setup) {
  if (!verdict.no_memory.empty()) {
    setup.neighbors.reset();
    log(LogLevel::info, "no shared memory on this host: " + verdict.no_memory);
  }
  if (!verdict.connection_errors.text.empty()) {
    setup.sockets.reset();
    log(rank == 0 ? LogLevel::warning : LogLevel::debug,
        "no sockets between hosts, so MPI is polled for control messages: " +
            verdict.connection_errors.text);
  }
  if (setup.sockets != nullptr) log(LogLevel::info, "sockets between hosts carry control messages");
}

}  // namespace

// The ranks agree three times: on their records, on the result of the setup, and on the end of the
// start-up. Between two agreements a rank works by itself or with others over sockets that time
// out, and keeps an error for the next agreement.
std::shared_ptr<Engine> start_engine(const StartArguments& arguments) {
  start_mpi(arguments.argc, arguments.argv);
  const Communicator world =
      Communicator::duplicate(arguments.comm == MPI_COMM_NULL ? MPI_COMM_WORLD : arguments.comm);
  Communicator control = Communicator::duplicate(world.get());
  Communicator data = Communicator::duplicate(world.get());
  Preparation own = prepare(world.get(), arguments.options);

  const std::vector<HostRecord> records = gather(world.get(), own.record);
  throw_if_any(find_errors(records));
  const Topology topology = find_topology(own.rank, records);
  Setup setup = set_up(world.get(), records, topology, own);

  const Verdict verdict = reach_verdict(records, gather(world.get(), setup.report), topology);
  throw_if_any(verdict.errors);
  set_log_level(own.settings.log_level);
  set_log_rank(topology.rank);
  follow(verdict, topology.rank, setup);
  std::unique_ptr<CpuLinks> links;
  std::string problem;
  attempt(problem, [&] {
    links = std::make_unique<CpuLinks>(std::move(control), std::move(data), topology,
                                       std::move(setup.neighbors), std::move(setup.sockets),
                                       verdict.all_hosts_share);
  });

  check_all_ranks(world.get(), problem);
  links->select_inter_node_algorithm(records.front().host_allreduce);
  settle(world.get());
  auto engine = std::make_shared<Engine>(engine_options(own.settings, records.front().session),
                                         topology, std::move(links), arguments.gpu_libraries);
  if (setup.timeline != nullptr) engine->start_timeline(setup.timeline);
  return engine;
}

}  // namespace kolo::internal::session
