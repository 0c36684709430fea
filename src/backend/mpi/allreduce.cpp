#include <utility>

#include "backend/mpi/executions.hpp"
#include "backend/mpi/pipeline.hpp"
#include "base/dtype.hpp"
#include "fusion/pack.hpp"

namespace kolo::backend::mpi {
namespace {

class Allreduce : public Pipeline {
 public:
  Allreduce(Context& context, Batch batch)
      : Pipeline(context, std::move(batch.members), size_of(batch.kind.dtype),
                 size_of(fusion::wire_type(batch.kind.dtype))),
        kind_(std::move(batch.kind)),
        sum_(context.sums.of(kind_.dtype)),
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
                                   sum_.type, sum_.op, context().comm, &piece.request),
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
  Sum sum_;
  std::int64_t wire_bytes_;
  std::int64_t divisor_;
};

}  // namespace

std::unique_ptr<Execution> make_allreduce(Context& context, Batch batch) {
  static_cast<void>(context.sums.of(batch.kind.dtype));  // refused before the batch takes its turn
  return std::make_unique<Allreduce>(context, std::move(batch));
}

}  // namespace kolo::backend::mpi
