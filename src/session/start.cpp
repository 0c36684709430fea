#include "session/start.hpp"

#include <random>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "kolo/error.hpp"
#include "node/mpi_error.hpp"
#include "session/control_sockets.hpp"
#include "session/cpu_links.hpp"
#include "session/meeting.hpp"
#include "session/mpi_environment.hpp"
#include "session/vote.hpp"

namespace kolo::session {
namespace {

/// A number that all ranks share and an earlier session did not have.
std::uint64_t agree_on_session(MPI_Comm comm) {
  std::uint64_t number = (std::uint64_t{std::random_device{}()} << 32) | std::random_device{}();
  node::check_mpi(MPI_Bcast(&number, 1, MPI_UINT64_T, 0, comm), "MPI_Bcast");
  return number;
}

/// Null if none is wanted, or it cannot be, which is a problem then.
std::shared_ptr<diagnostics::Timeline> open_timeline(const Settings& settings, int rank,
                                                     std::string& problem) {
  const std::string path = diagnostics::path_of_rank(settings.timeline, rank);
  if (path.empty()) return nullptr;
  try {
    return std::make_shared<diagnostics::Timeline>(path, rank);
  } catch (const InvalidArgument& error) {
    if (problem.empty()) problem = error.what();
    return nullptr;
  }
}

EngineOptions engine_options(const Settings& settings, std::uint64_t session) {
  return {.negotiation = {.session = session,
                          .fusion_threshold = settings.fusion_threshold,
                          .cache_capacity = settings.cache_capacity,
                          .stall_warning = settings.stall_warning,
                          .stall_shutdown = settings.stall_shutdown,
                          .plan_replay = settings.plan_replay},
          .recording = {.events = settings.flight_recorder,
                        .directory = settings.flight_recorder_dir,
                        .signal = settings.flight_recorder_signal,
                        .statistics = settings.statistics},
          .gpu = {.operations = settings.gpu_operations,
                  .nccl = {.init_timeout = settings.nccl_timeout}}};
}

/// MPI may keep a message until it has a connection and is called again, and from now on it may not
/// be called. Connections that were made for the first barrier carry the second at once.
void settle(MPI_Comm comm) {
  for (int i = 0; i < 2; ++i) node::check_mpi(MPI_Barrier(comm), "MPI_Barrier");
}

}  // namespace

std::shared_ptr<Engine> start_engine(const StartArguments& arguments) {
  start_mpi(arguments.argc, arguments.argv);
  const Communicator world =
      Communicator::duplicate(arguments.comm == MPI_COMM_NULL ? MPI_COMM_WORLD : arguments.comm);
  Settings settings;
  std::string problem;
  try {
    settings = read_settings(arguments.options);
  } catch (const InvalidArgument& error) {
    problem = error.what();
  }
  vote(world.get(), problem);
  const Topology topology = find_topology(world.get(), settings.test_ranks_per_host);
  const std::uint64_t session = agree_on_session(world.get());
  Meeting meeting = meet_neighbours(world.get(), topology, session, settings);
  const bool shares_memory = meeting.neighbours != nullptr;
  const bool has_network =
      topology.size > 1 && !(shares_memory && topology.local_size == topology.size);
  problem = meeting.single_copy.problem;
  if (settings.cpu_operations == CpuOperations::shm && !shares_memory)
    problem =
        "cpu_operations is shm, but the ranks of this host cannot share memory: " + meeting.why;
  else if (problem.empty() && (has_network || settings.control_interface.explicit_choice))
    problem = find_problem(settings.control_interface);
  const std::shared_ptr<diagnostics::Timeline> timeline =
      open_timeline(settings, topology.rank, problem);
  vote(world.get(), problem);
  set_log_level(settings.log_level);
  set_log_rank(topology.rank);
  if (!meeting.neighbours) log(LogLevel::info, "no shared memory on this host: " + meeting.why);
  std::unique_ptr<transport::SocketTransport> sockets;
  if (has_network) sockets = connect_hosts(world.get(), topology, settings, session, shares_memory);
  auto links = std::make_unique<CpuLinks>(world.get(), topology, std::move(meeting.neighbours),
                                          std::move(sockets), meeting.single_copy.from);
  links->choose_way_between_hosts(settings.host_allreduce);
  if (on_all_ranks(world.get(), settings.mpi_collectives)) links->use_mpi_collectives(world.get());
  settle(world.get());
  auto engine = std::make_shared<Engine>(engine_options(settings, session), topology,
                                         std::move(links), arguments.gpu_libraries);
  if (timeline != nullptr) engine->start_timeline(timeline);
  return engine;
}

}  // namespace kolo::session
