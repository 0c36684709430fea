// Makes the executions of the MPI backend. `index` is this rank's in the batch's `ranks`.
#pragma once

#include <memory>

#include "backend/backend.hpp"
#include "backend/mpi/context.hpp"

namespace kolo::backend::mpi {

// All of these throw InvalidArgument for a batch that cannot be executed.
[[nodiscard]] std::unique_ptr<Execution> make_allreduce(Context& context, Batch batch, int index);
[[nodiscard]] std::unique_ptr<Execution> make_adasum(Context& context, Batch batch, int index);
[[nodiscard]] std::unique_ptr<Execution> make_reducescatter(Context& context, Batch batch,
                                                            int index);
/// Allgather and alltoall.
[[nodiscard]] std::unique_ptr<Execution> make_gather(Context& context, Batch batch, int index);
[[nodiscard]] std::unique_ptr<Execution> make_broadcast(Context& context, Batch batch, int index);
[[nodiscard]] std::unique_ptr<Execution> make_text_broadcast(Context& context, Batch batch,
                                                             int index);
[[nodiscard]] std::unique_ptr<Execution> make_barrier(Context& context, Batch batch, int index);

}  // namespace kolo::backend::mpi
