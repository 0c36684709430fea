#include "mpi_types.hpp"

#include <limits>
#include <stdexcept>

namespace perf {

MPI_Datatype reduced_type(kolo::DType dtype) {
  using enum kolo::DType;
  switch (dtype) {
    case u8: return MPI_UINT8_T;
    case i8: return MPI_INT8_T;
    case u16: return MPI_UINT16_T;
    case i16: return MPI_INT16_T;
    case u32: return MPI_UINT32_T;
    case i32: return MPI_INT32_T;
    case u64: return MPI_UINT64_T;
    case i64: return MPI_INT64_T;
    case f32: return MPI_FLOAT;
    case f64: return MPI_DOUBLE;
    case boolean: return MPI_C_BOOL;
    case f16:
    case bf16: return MPI_DATATYPE_NULL;
  }
  throw std::logic_error("a dtype without an MPI type");
}

MPI_Datatype moved_type(kolo::DType dtype) {
  const MPI_Datatype type = reduced_type(dtype);
  return type == MPI_DATATYPE_NULL ? MPI_UINT16_T : type;
}

MPI_Op mpi_op(kolo::DType dtype, kolo::ReduceOp op) {
  const bool logical = dtype == kolo::DType::boolean;
  switch (op) {
    case kolo::ReduceOp::min: return logical ? MPI_LAND : MPI_MIN;
    case kolo::ReduceOp::max: return logical ? MPI_LOR : MPI_MAX;
    case kolo::ReduceOp::product: return logical ? MPI_LAND : MPI_PROD;
    default: return MPI_SUM;
  }
}

kolo::ReduceOp peer_op(kolo::ReduceOp op) {
  return op == kolo::ReduceOp::average ? kolo::ReduceOp::sum : op;
}

bool fits_mpi_count(std::int64_t elements) { return elements <= std::numeric_limits<int>::max(); }

}  // namespace perf
