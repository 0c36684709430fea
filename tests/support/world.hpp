// SPDX-License-Identifier: Apache-2.0
// The processes of a test, in and out of sessions.
#pragma once

#include <mpi.h>

#include <cstdlib>

namespace kolo::internal {

/// False if kolorun has started the test: then MPI is not initialized.
inline bool with_mpi() { return std::getenv("KOLO_RENDEZVOUS") == nullptr; }

inline int world_rank() {
  if (!with_mpi()) return std::atoi(std::getenv("RANK"));
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

inline int world_size() {
  if (!with_mpi()) return std::atoi(std::getenv("WORLD_SIZE"));
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

}  // namespace kolo::internal
