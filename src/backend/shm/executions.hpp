// Makes the executions of the shared-memory backend. `index` is this rank's in the batch's `ranks`,
// `hosts` are the indices on the host of all of them.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.hpp"
#include "backend/shm/arena.hpp"

namespace kolo::backend::shm {

using Hosts = std::vector<int>;

[[nodiscard]] std::unique_ptr<Execution> make_allreduce(Arena& arena, Batch batch, int index,
                                                        Hosts hosts);
[[nodiscard]] std::unique_ptr<Execution> make_reducescatter(Arena& arena, Batch batch, int index,
                                                            Hosts hosts);
/// Allgather and alltoall.
[[nodiscard]] std::unique_ptr<Execution> make_gather(Arena& arena, Batch batch, int index,
                                                     Hosts hosts);
[[nodiscard]] std::unique_ptr<Execution> make_broadcast(Arena& arena, Batch batch, int index,
                                                        Hosts hosts);
[[nodiscard]] std::unique_ptr<Execution> make_text_broadcast(Arena& arena, Batch batch, int index,
                                                             Hosts hosts);
[[nodiscard]] std::unique_ptr<Execution> make_barrier(Arena& arena, Batch batch, int index,
                                                      Hosts hosts);

}  // namespace kolo::backend::shm
