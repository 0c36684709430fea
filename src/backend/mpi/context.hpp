// What the executions of one MPI backend share.
#pragma once

#include <mpi.h>

#include <cstdint>

#include "backend/mpi/buffer_pool.hpp"

namespace kolo::backend::mpi {

struct Context {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  std::int64_t piece_bytes = 0;  // a multiple of 8
  BufferPool buffers{};
};

}  // namespace kolo::backend::mpi
