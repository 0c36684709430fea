// MPI's names for dtypes and operators.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <kolo/collectives.hpp>
#include <kolo/tensor.hpp>

namespace perf {

/// To reduce elements by. MPI_DATATYPE_NULL for f16 and bf16, which MPI does not have.
[[nodiscard]] MPI_Datatype reduced_type(kolo::DType dtype);

/// To move elements by: of the same size.
[[nodiscard]] MPI_Datatype moved_type(kolo::DType dtype);

/// MPI has no average: its peer is the sum, without the division.
[[nodiscard]] MPI_Op mpi_op(kolo::DType dtype, kolo::ReduceOp op);

/// What MPI is asked for in place of `op`.
[[nodiscard]] kolo::ReduceOp peer_op(kolo::ReduceOp op);

/// Whether MPI, whose counts are int, can say so many.
[[nodiscard]] bool fits_mpi_count(std::int64_t elements);

}  // namespace perf
