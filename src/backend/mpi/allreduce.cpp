#include <fmt/format.h>

#include <utility>

#include "backend/mpi/executions.hpp"
#include "backend/mpi/pipeline.hpp"
#include "base/dtype.hpp"
#include "base/format.hpp"
#include "fusion/pack.hpp"
#include "kolo/error.hpp"

namespace kolo::backend::mpi {
namespace {

/// Integers are summed as unsigned: the same bits, and wrapping is defined.
MPI_Datatype sum_type(DType dtype) {
  switch (dtype) {
    case DType::u8:
    case DType::i8: return MPI_UINT8_T;
    case DType::u16:
    case DType::i16: return MPI_UINT16_T;
    case DType::u32:
    case DType::i32: return MPI_UINT32_T;
    case DType::u64:
    case DType::i64: return MPI_UINT64_T;
    case DType::f16:
    case DType::bf16:
    case DType::f32: return MPI_FLOAT;
    case DType::f64: return MPI_DOUBLE;
    case DType::boolean: break;
  }
  throw InvalidArgument(fmt::format("{} has no sum", to_string(dtype)));
}

class Allreduce : public Pipeline {
 public:
  Allreduce(Context& context, Batch batch)
      : Pipeline(context, std::move(batch.members), size_of(batch.kind.dtype),
                 size_of(fusion::wire_type(batch.kind.dtype))),
        kind_(std::move(batch.kind)),
        type_(sum_type(kind_.dtype)),
        wire_bytes_(static_cast<std::int64_t>(size_of(fusion::wire_type(kind_.dtype)))),
        divisor_(kind_.op == ReduceOp::average ? context.size : 1) {}

 private:
  void prepare(Piece& piece) override {
    take_buffer(piece);
    if (sent_from_its_place(piece)) return;
    std::byte* to = piece.buffer.get();
    for (const Part& part : piece.parts) {
      fusion::pack(part.data, part.elements, kind_.dtype, kind_.prescale, to);
      to += part.elements * wire_bytes_;
    }
  }

  void call(Piece& piece) override {
    const std::byte* from =
        sent_from_its_place(piece) ? piece.parts.front().data : piece.buffer.get();
    node::check_mpi(MPI_Iallreduce(from, second_half(piece), static_cast<int>(piece.elements),
                                   type_, MPI_SUM, context().comm, &piece.request),
                    "MPI_Iallreduce");
  }

  void finish(Piece& piece) override {
    const std::byte* from = second_half(piece);
    for (const Part& part : piece.parts) {
      fusion::unpack(from, part.elements, kind_.dtype, divisor_, kind_.postscale, part.data);
      from += part.elements * wire_bytes_;
    }
  }

  [[nodiscard]] bool sent_from_its_place(const Piece& piece) const {
    return piece.parts.size() == 1 && kind_.prescale == 1.0 && !is_half(kind_.dtype);
  }

  Descriptor kind_;
  MPI_Datatype type_;
  std::int64_t wire_bytes_;
  std::int64_t divisor_;
};

}  // namespace

std::unique_ptr<Execution> make_allreduce(Context& context, Batch batch) {
  static_cast<void>(sum_type(batch.kind.dtype));  // refused before the batch takes its turn
  return std::make_unique<Allreduce>(context, std::move(batch));
}

}  // namespace kolo::backend::mpi
