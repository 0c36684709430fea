#include "session/start.hpp"

#include <random>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "kolo/error.hpp"
#include "node/mpi_error.hpp"
#include "session/cpu_links.hpp"
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
  const bool shm_is_demanded = settings.cpu_operations == CpuOperations::shm;
  if (shm_is_demanded && !meeting.neighbours)
    problem =
        "cpu_operations is shm, but the ranks of this host cannot share memory: " + meeting.why;
  else
    problem = meeting.single_copy.problem;
  const std::shared_ptr<diagnostics::Timeline> timeline =
      open_timeline(settings, topology.rank, problem);
  vote(world.get(), problem);
  set_log_level(settings.log_level);
  set_log_rank(topology.rank);
  if (!meeting.neighbours) log(LogLevel::info, "no shared memory on this host: " + meeting.why);
  auto engine = std::make_shared<Engine>(
      settings, topology, session,
      std::make_unique<CpuLinks>(world.get(), topology, std::move(meeting.neighbours),
                                 meeting.single_copy.from));
  if (timeline != nullptr) engine->start_timeline(timeline);
  return engine;
}

}  // namespace kolo::session
