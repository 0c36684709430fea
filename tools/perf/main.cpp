// Measures Kolo's collectives beside MPI's:
//
//     mpirun -np 4 kolo-perf --operation allreduce --sizes 4,64K,16M
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "options.hpp"
#include "run.hpp"
#include "runtime.hpp"
#include "world.hpp"

namespace {

constexpr int usage_status = 2;

/// The same on all ranks: the first that has a complaint prints it, and all stop.
bool any_complains(const perf::World& world, const std::string& complaint) {
  const int none = world.size();
  const int first = none - world.maximum(complaint.empty() ? 0 : none - world.rank());
  if (first == world.rank()) fmt::print(stderr, "kolo-perf: {} (--help says more)\n", complaint);
  return first != none;
}

/// An exception on one rank ends all of them, since the others may wait for it in MPI.
int run_session(const perf::Options& options, const perf::World& world) {
  std::int64_t wrong = 0;
  try {
    const perf::KoloRuntime kolo;
    try {
      wrong = perf::run(options, world);
    } catch (const std::exception& error) {
      fmt::print(stderr, "kolo-perf: rank {}: {}\n", world.rank(), error.what());
      MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "kolo-perf: rank {}: {}\n", world.rank(), error.what());
    return EXIT_FAILURE;
  }
  if (wrong == 0) return EXIT_SUCCESS;
  if (world.rank() == 0) fmt::print(stderr, "kolo-perf: {} elements were wrong\n", wrong);
  return EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  const perf::MpiRuntime mpi(&argc, &argv);
  const perf::World world;
  perf::Options options;
  std::string complaint;
  try {
    options = perf::parse_options(argc, argv);
    if (options.answer.empty()) perf::check_options(options, world);
  } catch (const perf::UsageError& error) {
    complaint = error.what();
  }
  if (any_complains(world, complaint)) return usage_status;
  if (!options.answer.empty()) {
    if (world.rank() == 0) fmt::print("{}", options.answer);
    return EXIT_SUCCESS;
  }
  if (!mpi.is_threaded()) {
    if (world.rank() == 0)
      fmt::print(stderr, "kolo-perf: this MPI has no MPI_THREAD_MULTIPLE, which it needs\n");
    return EXIT_FAILURE;
  }
  return run_session(options, world);
}
