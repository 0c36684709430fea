// How long each way from host to host takes on this network.
#pragma once

#include "backend/hierarchical/placement.hpp"
#include "backend/hierarchical/ways.hpp"
#include "backend/mpi/context.hpp"

namespace kolo::backend::hierarchical {

/// Collective over the communicator, all of whose ranks `placement` has. A few megabytes cross the
/// network some times; nothing does where there is no choice.
[[nodiscard]] Ways try_ways(mpi::Context& context, const Placement& placement);

}  // namespace kolo::backend::hierarchical
