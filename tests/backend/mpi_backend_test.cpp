// SPDX-License-Identifier: Apache-2.0
// What is MPI's own.
#include "backend/mpi/mpi_backend.hpp"

#include "fixture.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend {
namespace {

class MpiBackendRefuses : public BackendTest {};

TEST_F(MpiBackendRefuses, PiecesOfNoUse) {
  EXPECT_THROW(MpiBackend(comm_, 0), InvalidArgument);
  EXPECT_THROW(MpiBackend(comm_, std::int64_t{1} << 31), InvalidArgument);
}

}  // namespace
}  // namespace kolo::internal::backend
