// SPDX-License-Identifier: Apache-2.0
// The backend under test is MPI's.
#include "backend/mpi/mpi_backend.hpp"
#include "fixture.hpp"

namespace kolo::internal::backend {

std::unique_ptr<Backend> make_backend(MPI_Comm comm, std::int64_t piece_bytes) {
  return std::make_unique<MpiBackend>(comm, piece_bytes);
}

std::int64_t default_piece_bytes() { return MpiBackend::default_piece_bytes; }
std::int64_t large_piece_bytes() { return std::int64_t{1} << 30; }

}  // namespace kolo::internal::backend
