// SPDX-License-Identifier: Apache-2.0
// Sets up shared memory among the ranks of a test program, without a session.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>

#include "node/local_group.hpp"

namespace kolo::internal::node {

/// Exchanges inboxes among the ranks of `comm`, which are all on one host.
inline FdExchangeGroup exchange_inboxes(MPI_Comm comm, std::uint64_t own) {
  FdExchangeGroup group;
  int size = 1;
  MPI_Comm_rank(comm, &group.index);
  MPI_Comm_size(comm, &size);
  group.inboxes.resize(static_cast<std::size_t>(size));
  MPI_Allgather(&own, 1, MPI_UINT64_T, group.inboxes.data(), 1, MPI_UINT64_T, comm);
  return group;
}

inline LocalGroup share_memory(MPI_Comm comm, std::size_t bytes, std::size_t heap_bytes) {
  OwnMemory own(bytes, heap_bytes);
  const FdExchangeGroup group = exchange_inboxes(comm, own.inbox());
  return {std::move(own), group, [] {}};
}

}  // namespace kolo::internal::node
