#include "backend/mpi/mpi_backend.hpp"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "backend/batch.hpp"
#include "backend/mpi/collective.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"
#include "node/error_codes.hpp"

namespace kolo::internal::backend {
namespace {

void check_ranks(const Batch& batch, int size) {
  for (const int rank : batch.ranks)
    if (rank < 0 || rank >= size)
      throw InvalidArgument(fmt::format("rank {} is not one of the {} ranks", rank, size));
}

}  // namespace

MpiBackend::MpiBackend(MPI_Comm comm, std::int64_t piece_bytes) {
  if (piece_bytes < 8 || piece_bytes > std::numeric_limits<int>::max())
    throw InvalidArgument(
        fmt::format("piece_bytes is {}; it must be at least 8 and below 2^31", piece_bytes));
  endpoint_.comm = comm;
  node::check_mpi(MPI_Comm_rank(comm, &endpoint_.rank), "MPI_Comm_rank");
  node::check_mpi(MPI_Comm_size(comm, &endpoint_.size), "MPI_Comm_size");
  endpoint_.piece_bytes = piece_bytes - piece_bytes % 8;  // whole elements of every type
}

std::unique_ptr<Execution> MpiBackend::start(Batch batch) {
  check_ranks(batch, endpoint_.size);
  check(batch);
  const int index = index_of(endpoint_.rank, batch);
  switch (batch.kind.type) {
    case OperationType::allreduce:
      return batch.kind.op == ReduceOp::adasum
                 ? mpi::make_adasum(endpoint_, std::move(batch), index)
                 : mpi::make_allreduce(endpoint_, std::move(batch), index);
    case OperationType::reducescatter:
      return mpi::make_reducescatter(endpoint_, std::move(batch), index);
    case OperationType::allgather:
    case OperationType::alltoall: return mpi::make_gather(endpoint_, std::move(batch), index);
    case OperationType::broadcast:
    case OperationType::broadcast_text:
      return mpi::make_broadcast(endpoint_, std::move(batch), index);
    // All ranks have called it, else there would be no batch: an allreduce of no tensors.
    case OperationType::barrier: return mpi::make_allreduce(endpoint_, std::move(batch), index);
    case OperationType::join:
    case OperationType::add_process_set:
    case OperationType::remove_process_set: break;
  }
  throw InvalidArgument(fmt::format("MPI cannot execute \"{}\"", to_string(batch.kind)));
}

}  // namespace kolo::internal::backend
