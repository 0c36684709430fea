#include "backend/mpi/native_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "backend/batch.hpp"
#include "backend/pieces.hpp"
#include "base/dtype.hpp"
#include "base/format.hpp"
#include "kolo/error.hpp"
#include "node/mpi_error.hpp"
#include "reduction/reduce.hpp"

namespace kolo::backend {
namespace {

/// In which elements of `wire` are combined.
DType combined_type(DType wire) { return is_half(wire) ? DType::f32 : wire; }

MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::u8:
    case DType::boolean: return MPI_UINT8_T;
    case DType::i8: return MPI_INT8_T;
    case DType::u16: return MPI_UINT16_T;
    case DType::i16: return MPI_INT16_T;
    case DType::u32: return MPI_UINT32_T;
    case DType::i32: return MPI_INT32_T;
    case DType::u64: return MPI_UINT64_T;
    case DType::i64: return MPI_INT64_T;
    case DType::f32: return MPI_FLOAT;
    case DType::f64: return MPI_DOUBLE;
    case DType::f16:
    case DType::bf16: break;  // never combined as such
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::average:
    case ReduceOp::sum: return MPI_SUM;
    case ReduceOp::min: return MPI_MIN;
    case ReduceOp::max: return MPI_MAX;
    case ReduceOp::product: return MPI_PROD;
    case ReduceOp::adasum: break;
  }
  return MPI_OP_NULL;
}

class NativeAllreduce : public Execution {
 public:
  NativeAllreduce(mpi::NativeContext& context, Batch batch)
      : context_(context),
        batch_(std::move(batch)),
        cutter_(element_runs(batch_), context.piece_bytes),
        turn_(context.next_turn++) {}

  ~NativeAllreduce() override {
    for (Slot& slot : slots_)
      if (slot.request != MPI_REQUEST_NULL) static_cast<void>(slot.combined.release());
  }
  NativeAllreduce(const NativeAllreduce&) = delete;
  NativeAllreduce& operator=(const NativeAllreduce&) = delete;

  [[nodiscard]] Progress step() override {
    const bool moved = finish_oldest() || begin_next();
    if (all_begun_ && oldest_ == next_) return Progress::done;
    return moved ? Progress::moved : Progress::waiting;
  }

  [[nodiscard]] Awaited waits_for() const override { return {{}, "MPI_Iallreduce"}; }

 private:
  struct Slot {
    Piece piece{};
    mpi::Buffer combined{};
    mpi::Buffer packed{};  // of half types
    MPI_Request request = MPI_REQUEST_NULL;
  };

  bool begin_next() {
    if (all_begun_ || turn_ != context_.turn || next_ - oldest_ == slots_.size()) return false;
    Slot& slot = slots_[next_ % slots_.size()];
    if (!cutter_.next(slot.piece)) {
      all_begun_ = true;
      ++context_.turn;
      return true;
    }
    pack(slot);
    call_mpi(slot);
    ++next_;
    return true;
  }

  bool finish_oldest() {
    if (oldest_ == next_) return false;
    Slot& slot = slots_[oldest_ % slots_.size()];
    if (!mpi_is_done(slot)) return false;
    unpack(slot);
    ++oldest_;
    return true;
  }

  void call_mpi(Slot& slot) {
    const PhaseTimer timer(batch_, Phase::reduce);
    node::check_mpi(
        MPI_Iallreduce(MPI_IN_PLACE, slot.combined.get(), static_cast<int>(slot.piece.elements),
                       mpi_type(combined_type(slot.piece.wire)), mpi_op(batch_.kind.op),
                       context_.comm, &slot.request),
        "MPI_Iallreduce");
  }

  [[nodiscard]] bool mpi_is_done(Slot& slot) {
    PhaseTimer timer(batch_, Phase::reduce);
    int done = 0;
    node::check_mpi(MPI_Test(&slot.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0) timer.discard();
    return done != 0;
  }

  void pack(Slot& slot) {
    const PhaseTimer timer(batch_, Phase::pack);
    const Piece& piece = slot.piece;
    const DType combined = combined_type(piece.wire);
    slot.combined = context_.buffers.take(combined_bytes(piece));
    if (combined == piece.wire) {
      fusion::pack(piece.parts, piece.dtype, piece.wire, slot.combined.get());
    } else {
      slot.packed = context_.buffers.take(piece.wire_bytes());
      fusion::pack(piece.parts, piece.dtype, piece.wire, slot.packed.get());
      fusion::convert(slot.packed.get(), piece.wire, piece.elements, slot.combined.get(), combined);
    }
    reduction::Arithmetic arithmetic = arithmetic_of(batch_, combined);
    arithmetic.postscale = 1.0;
    arithmetic.divisor = 1;
    if (arithmetic.prescale != 1.0) scale(arithmetic, slot);
  }

  void unpack(Slot& slot) {
    const PhaseTimer timer(batch_, Phase::unpack);
    const Piece& piece = slot.piece;
    const DType combined = combined_type(piece.wire);
    reduction::Arithmetic arithmetic = arithmetic_of(batch_, combined);
    arithmetic.prescale = 1.0;
    if (arithmetic.postscale != 1.0 || arithmetic.divisor != 1) scale(arithmetic, slot);
    if (combined == piece.wire) {
      fusion::unpack(slot.combined.get(), piece.wire, piece.dtype, piece.parts);
    } else {
      fusion::convert(slot.combined.get(), combined, piece.elements, slot.packed.get(), piece.wire);
      fusion::unpack(slot.packed.get(), piece.wire, piece.dtype, piece.parts);
      context_.buffers.give_back(std::move(slot.packed), piece.wire_bytes());
    }
    context_.buffers.give_back(std::move(slot.combined), combined_bytes(piece));
  }

  static void scale(const reduction::Arithmetic& arithmetic, Slot& slot) {
    const std::byte* const input = slot.combined.get();
    reduction::reduce(arithmetic, {&input, 1}, slot.piece.elements, slot.combined.get());
  }

  static std::int64_t combined_bytes(const Piece& piece) {
    return piece.elements * signed_size_of(combined_type(piece.wire));
  }

  mpi::NativeContext& context_;
  Batch batch_;
  Cutter cutter_;
  std::uint64_t turn_;
  std::array<Slot, 2> slots_{};
  // Pieces in the order of their beginning.
  std::size_t oldest_ = 0;
  std::size_t next_ = 0;
  bool all_begun_ = false;
};

}  // namespace

MpiNativeBackend::MpiNativeBackend(MPI_Comm comm, std::int64_t piece_bytes) {
  if (piece_bytes < 8 || piece_bytes > std::numeric_limits<int>::max())
    throw InvalidArgument(
        fmt::format("piece_bytes is {}; it must be at least 8 and below 2^31", piece_bytes));
  context_.comm = comm;
  node::check_mpi(MPI_Comm_size(comm, &context_.size), "MPI_Comm_size");
  context_.piece_bytes = piece_bytes - piece_bytes % 8;  // whole elements of every type
}

bool MpiNativeBackend::can_execute(const Batch& batch) const {
  const ReduceOp op = batch.kind.op;
  if (batch.kind.type != OperationType::allreduce || op == ReduceOp::adasum ||
      static_cast<int>(batch.ranks.size()) != context_.size)
    return false;
  const bool orders = op == ReduceOp::min || op == ReduceOp::max;
  return std::ranges::all_of(batch.members, [=](const Member* member) {
    return orders ? !is_floating(member->dtype)
                  : size_of(member->dtype) > 2 || is_half(member->dtype);
  });
}

std::unique_ptr<Execution> MpiNativeBackend::start(Batch batch) {
  if (!can_execute(batch))
    throw InvalidArgument(fmt::format("MPI has no collective for \"{}\"", to_string(batch.kind)));
  check(batch);
  return std::make_unique<NativeAllreduce>(context_, std::move(batch));
}

}  // namespace kolo::backend
