// SPDX-License-Identifier: Apache-2.0
#include "backend/mpi/mpi_backend.hpp"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "backend/batch.hpp"
#include "backend/mpi/collective.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {
namespace {

void check_ranks(const Batch& batch, int size) {
  for (const int rank : batch.ranks)
    if (rank < 0 || rank >= size)
      throw InvalidArgument(fmt::format("rank {} is not one of the {} ranks", rank, size));
}

}  // namespace

MpiBackend::MpiBackend(messenger::Messenger& messenger, std::int64_t piece_bytes)
    : endpoint_(messenger, piece_bytes) {
  if (piece_bytes < 8 || piece_bytes > std::numeric_limits<int>::max())
    throw InvalidArgument(
        fmt::format("piece_bytes is {}; it must be at least 8 and below 2^31", piece_bytes));
  if (messenger.tag_count() < mpi::Exchange::min_tags)
    throw InvalidArgument(fmt::format("there are {} tags; there must be at least {}",
                                      messenger.tag_count(), mpi::Exchange::min_tags));
}

std::unique_ptr<Execution> MpiBackend::start(Batch batch) {
  check_ranks(batch, endpoint_.size);
  check(batch);
  switch (batch.kind.type) {
    case OperationType::barrier:  // runs as an allreduce without tensors
    case OperationType::allreduce:
      return batch.kind.op == ReduceOp::adasum ? mpi::make_adasum(endpoint_, std::move(batch))
                                               : mpi::make_allreduce(endpoint_, std::move(batch));
    case OperationType::reducescatter: return mpi::make_reducescatter(endpoint_, std::move(batch));
    case OperationType::allgather:
    case OperationType::alltoall: return mpi::make_gather(endpoint_, std::move(batch));
    case OperationType::broadcast:
    case OperationType::broadcast_string: return mpi::make_broadcast(endpoint_, std::move(batch));
    case OperationType::join:
    case OperationType::add_process_set:
    case OperationType::remove_process_set: break;
  }
  throw InvalidArgument(fmt::format("MPI cannot execute \"{}\"", to_string(batch.kind)));
}

}  // namespace kolo::internal::backend
