#include "backend/mpi/mpi_backend.hpp"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "backend/mpi/executions.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"
#include "node/mpi_error.hpp"

namespace kolo::backend {

MpiBackend::MpiBackend(MPI_Comm comm, std::int64_t piece_bytes) {
  if (piece_bytes < 8 || piece_bytes > std::numeric_limits<int>::max())
    throw InvalidArgument(
        fmt::format("piece_bytes is {}; it must be at least 8 and below 2^31", piece_bytes));
  context_.comm = comm;
  node::check_mpi(MPI_Comm_rank(comm, &context_.rank), "MPI_Comm_rank");
  node::check_mpi(MPI_Comm_size(comm, &context_.size), "MPI_Comm_size");
  context_.piece_bytes = piece_bytes - piece_bytes % 8;  // whole elements of every type
}

std::unique_ptr<Execution> MpiBackend::start(Batch batch) {
  if (batch.kind.device.type != DeviceType::cpu)
    throw InvalidArgument(fmt::format("MPI cannot execute \"{}\": the memory must be on the CPU",
                                      to_string(batch.kind)));
  switch (batch.kind.type) {
    case OperationType::allreduce: return mpi::make_allreduce(context_, std::move(batch));
    case OperationType::broadcast: return mpi::make_broadcast(context_, std::move(batch));
    case OperationType::broadcast_text: return mpi::make_text_broadcast(context_, std::move(batch));
    case OperationType::barrier: return mpi::make_barrier(context_);
  }
  throw InvalidArgument("MPI cannot execute an unknown operation");
}

}  // namespace kolo::backend
