#include "backend/hierarchical/trial.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "backend/hierarchical/crossing.hpp"
#include "backend/hierarchical/owners.hpp"
#include "node/error_codes.hpp"

namespace kolo::backend::hierarchical {
namespace {

constexpr int at_once = mpi::Exchange::lanes / Crossing::lanes;  // slices, as in an allreduce
constexpr int rounds = 4;

/// Until as many slices have crossed as an allreduce has under way. In seconds.
double cross(mpi::Context& context, const Owners& owners, Way way, std::int64_t bytes) {
  const auto begin = std::chrono::steady_clock::now();
  mpi::Exchange exchange(context, 0);
  std::vector<std::unique_ptr<Crossing>> crossings;
  for (int i = 0; i < at_once; ++i) {
    crossings.push_back(make_crossing(way, exchange, owners, i * Crossing::lanes, bytes / 4,
                                      {.dtype = DType::f32}));
    std::memset(crossings.back()->input(), 0, static_cast<std::size_t>(bytes));
    crossings.back()->send();
  }
  while (!crossings.empty()) {
    const bool moved = exchange.step();
    std::erase_if(crossings, [](const auto& crossing) { return crossing->advance(); });
    if (!moved) std::this_thread::yield();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The quickest round, of which the slowest rank counts.
double measure(mpi::Context& context, const std::optional<Owners>& owners, Way way,
               std::int64_t bytes) {
  double quickest = 0.0;
  for (int round = 0; round < rounds; ++round) {
    double seconds = owners ? cross(context, *owners, way, bytes) : 0.0;
    node::check_mpi(MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, context.comm),
                    "MPI_Allreduce");
    quickest = round == 0 ? seconds : std::min(quickest, seconds);
  }
  return quickest;
}

}  // namespace

Ways try_ways(mpi::Context& context, const Placement& placement) {
  const auto hosts = static_cast<int>(placement.hosts.size());
  if (hosts < 3 || !placement.has_levels()) return {};
  const std::optional<Owners> owners = owners_with(context.rank, placement);
  std::vector<std::vector<double>> seconds;
  for (const std::int64_t bytes : Ways::tried_bytes) {
    seconds.emplace_back();
    for (const Way way : Ways::tried(hosts))
      seconds.back().push_back(measure(context, owners, way, bytes));
  }
  return {hosts, seconds};
}

}  // namespace kolo::backend::hierarchical
