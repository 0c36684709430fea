// How MPI is to add the elements of each type.
#pragma once

#include <mpi.h>

#include "kolo/tensor.hpp"

namespace kolo::backend::mpi {

struct Sum {
  MPI_Datatype type;
  MPI_Op op;
};

/// Sums of integers wrap. MPI does not promise it, and Open MPI's sums of 8 and 16 bits stop at the
/// type's limits where the processor has vector instructions for that: so those two are our own.
class Sums {
 public:
  Sums();
  ~Sums();
  Sums(const Sums&) = delete;
  Sums& operator=(const Sums&) = delete;

  /// For the type in which `dtype` travels. Throws InvalidArgument for booleans, which have no sum.
  [[nodiscard]] Sum of(DType dtype) const;

 private:
  MPI_Op of_8_bits_ = MPI_OP_NULL;
  MPI_Op of_16_bits_ = MPI_OP_NULL;
};

}  // namespace kolo::backend::mpi
