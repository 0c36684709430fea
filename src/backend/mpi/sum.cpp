#include "backend/mpi/sum.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "base/format.hpp"
#include "kolo/error.hpp"
#include "node/mpi_error.hpp"

namespace kolo::backend::mpi {
namespace {

/// An MPI_User_function.
template <typename Unsigned>
void add(void* from, void* to, int* count, MPI_Datatype* /*type*/) {
  const auto* const addends = static_cast<const Unsigned*>(from);
  auto* const sums = static_cast<Unsigned*>(to);
  for (int i = 0; i < *count; ++i) sums[i] = static_cast<Unsigned>(sums[i] + addends[i]);
}

}  // namespace

Sums::Sums() {
  constexpr int commutes = 1;
  node::check_mpi(MPI_Op_create(add<std::uint8_t>, commutes, &of_8_bits_), "MPI_Op_create");
  node::check_mpi(MPI_Op_create(add<std::uint16_t>, commutes, &of_16_bits_), "MPI_Op_create");
}

Sums::~Sums() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;
  MPI_Op_free(&of_8_bits_);
  MPI_Op_free(&of_16_bits_);
}

Sum Sums::of(DType dtype) const {
  // Signed integers are added as unsigned ones: the same bits, and wrapping is defined.
  switch (dtype) {
    case DType::u8:
    case DType::i8: return {MPI_UINT8_T, of_8_bits_};
    case DType::u16:
    case DType::i16: return {MPI_UINT16_T, of_16_bits_};
    case DType::u32:
    case DType::i32: return {MPI_UINT32_T, MPI_SUM};
    case DType::u64:
    case DType::i64: return {MPI_UINT64_T, MPI_SUM};
    case DType::f16:
    case DType::bf16:
    case DType::f32: return {MPI_FLOAT, MPI_SUM};
    case DType::f64: return {MPI_DOUBLE, MPI_SUM};
    case DType::boolean: break;
  }
  throw InvalidArgument(fmt::format("{} has no sum", to_string(dtype)));
}

}  // namespace kolo::backend::mpi
