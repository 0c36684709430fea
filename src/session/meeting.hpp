// How the ranks of a host come to share memory.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>

#include "node/neighbourhood.hpp"
#include "session/settings.hpp"
#include "session/topology.hpp"

namespace kolo::session {

/// The ranks of this host, if all of them can share memory; else null, and `why` says why not.
struct Meeting {
  std::unique_ptr<node::Neighbourhood> neighbours{};
  std::string why{};
};

/// Collective.
[[nodiscard]] Meeting meet_neighbours(MPI_Comm world, const Topology& topology,
                                      std::uint64_t session, const Settings& settings);

}  // namespace kolo::session
