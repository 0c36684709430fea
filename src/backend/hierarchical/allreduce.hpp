// Makes allreduces among ranks of several hosts.
#pragma once

#include <memory>

#include "backend/backend.hpp"
#include "backend/hierarchical/placement.hpp"
#include "backend/hierarchical/ways.hpp"
#include "backend/mpi/context.hpp"
#include "backend/shm/arena.hpp"
#include "backend/shm/executions.hpp"

namespace kolo::backend::hierarchical {

/// `index` is this rank's among those of its host that take part, `hosts` are their indices on the
/// host.
[[nodiscard]] std::unique_ptr<Execution> make_allreduce(shm::Arena& arena, mpi::Context& context,
                                                        Batch batch, const Placement& placement,
                                                        const Ways& ways, int index,
                                                        shm::Hosts hosts);

}  // namespace kolo::backend::hierarchical
