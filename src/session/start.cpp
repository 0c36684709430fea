#include "session/start.hpp"

#include <random>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "kolo/error.hpp"
#include "node/mpi_error.hpp"
#include "session/mpi_environment.hpp"
#include "session/mpi_links.hpp"
#include "session/vote.hpp"

namespace kolo::session {
namespace {

/// A number that all ranks share and an earlier session did not have.
std::uint64_t agree_on_session(MPI_Comm comm) {
  std::uint64_t number = (std::uint64_t{std::random_device{}()} << 32) | std::random_device{}();
  node::check_mpi(MPI_Bcast(&number, 1, MPI_UINT64_T, 0, comm), "MPI_Bcast");
  return number;
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
  const Topology topology = find_topology(world.get());
  const std::uint64_t session = agree_on_session(world.get());
  set_log_level(settings.log_level);
  set_log_rank(topology.rank);
  return std::make_shared<Engine>(settings, topology, session,
                                  std::make_unique<MpiLinks>(world.get()));
}

}  // namespace kolo::session
