// SPDX-License-Identifier: Apache-2.0
// The collectives of several hosts, in which each host's ranks share the work.
#pragma once

#include <memory>
#include <optional>

#include "backend/backend.hpp"
#include "backend/internode/algorithms.hpp"
#include "backend/internode/placement.hpp"
#include "backend/mpi/exchange.hpp"
#include "backend/shm/arena.hpp"
#include "backend/shm/pipeline.hpp"

namespace kolo::internal::backend::internode {

// `local_ranks` are the participating ranks of this host, in the order of the placement.

/// Uses `algorithm`, or else the selected one for each slice.
[[nodiscard]] std::unique_ptr<Execution> make_allreduce(
    shm::Arena& arena, mpi::Endpoint& endpoint, Batch batch, const Placement& placement,
    shm::LocalRanks local_ranks, std::optional<InterNodeAlgorithm> algorithm);
[[nodiscard]] std::unique_ptr<Execution> make_reducescatter(shm::Arena& arena,
                                                            mpi::Endpoint& endpoint, Batch batch,
                                                            const Placement& placement,
                                                            shm::LocalRanks local_ranks);
[[nodiscard]] std::unique_ptr<Execution> make_allgather(shm::Arena& arena, mpi::Endpoint& endpoint,
                                                        Batch batch, const Placement& placement,
                                                        shm::LocalRanks local_ranks);

}  // namespace kolo::internal::backend::internode
