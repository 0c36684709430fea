#include "backend/mpi/mpi_backend.hpp"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "backend/batch.hpp"
#include "backend/mpi/executions.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"
#include "node/error_codes.hpp"

namespace kolo::backend {
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
  context_.comm = comm;
  node::check_mpi(MPI_Comm_rank(comm, &context_.rank), "MPI_Comm_rank");
  node::check_mpi(MPI_Comm_size(comm, &context_.size), "MPI_Comm_size");
  context_.piece_bytes = piece_bytes - piece_bytes % 8;  // whole elements of every type
}

std::unique_ptr<Execution> MpiBackend::start(Batch batch) {
  check_ranks(batch, context_.size);
  check(batch);
  const int index = index_of(context_.rank, batch);
  switch (batch.kind.type) {
    case OperationType::allreduce:
      return batch.kind.op == ReduceOp::adasum
                 ? mpi::make_adasum(context_, std::move(batch), index)
                 : mpi::make_allreduce(context_, std::move(batch), index);
    case OperationType::reducescatter:
      return mpi::make_reducescatter(context_, std::move(batch), index);
    case OperationType::allgather:
    case OperationType::alltoall: return mpi::make_gather(context_, std::move(batch), index);
    case OperationType::broadcast: return mpi::make_broadcast(context_, std::move(batch), index);
    case OperationType::broadcast_text:
      return mpi::make_text_broadcast(context_, std::move(batch), index);
    case OperationType::barrier: return mpi::make_barrier(context_, std::move(batch), index);
    case OperationType::join:
    case OperationType::add_process_set:
    case OperationType::remove_process_set: break;
  }
  throw InvalidArgument(fmt::format("MPI cannot execute \"{}\"", to_string(batch.kind)));
}

}  // namespace kolo::backend
