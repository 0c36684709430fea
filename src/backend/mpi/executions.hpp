// Makes the executions of the MPI backend: one file per collective.
#pragma once

#include <memory>

#include "backend/backend.hpp"
#include "backend/mpi/context.hpp"

namespace kolo::backend::mpi {

[[nodiscard]] std::unique_ptr<Execution> make_allreduce(Context& context, Batch batch);
[[nodiscard]] std::unique_ptr<Execution> make_broadcast(Context& context, Batch batch);
[[nodiscard]] std::unique_ptr<Execution> make_text_broadcast(Context& context, Batch batch);
[[nodiscard]] std::unique_ptr<Execution> make_barrier(Context& context);

}  // namespace kolo::backend::mpi
