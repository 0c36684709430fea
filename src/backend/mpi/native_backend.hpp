// Executes allreduces by MPI's own collective, for whom its library has a better one.
#pragma once

#include <mpi.h>

#include <cstdint>

#include "backend/backend.hpp"
#include "backend/mpi/buffer_pool.hpp"

namespace kolo::backend {

namespace mpi {

/// What the executions of one native backend share.
struct NativeContext {
  MPI_Comm comm = MPI_COMM_NULL;
  int size = 1;
  std::int64_t piece_bytes = 0;
  BufferPool buffers{};
  // All ranks must call a communicator's collectives in the same order, so batches take turns.
  std::uint64_t next_turn = 0;
  std::uint64_t turn = 0;
};

}  // namespace mpi

/// Packs a batch, piece by piece, and gives each to MPI_Iallreduce; a batch begins when those that
/// were started before it have given theirs. In which order ranks are
/// combined, and whether all of them get the same bits, is up to MPI.
class MpiNativeBackend : public Backend {
 public:
  static constexpr std::int64_t default_piece_bytes = std::int64_t{4} << 20;

  /// As MpiBackend's; `comm` is another one.
  explicit MpiNativeBackend(MPI_Comm comm, std::int64_t piece_bytes = default_piece_bytes);

  /// True for allreduces in which all ranks of the communicator take part, but for Adasum; for
  /// the minimum and maximum of floating-point numbers, of which MPI may lose a NaN; and for sums
  /// and products of integers of 8 and 16 bits, which Open MPI saturates on some processors.
  [[nodiscard]] bool can_execute(const Batch& batch) const;

  /// As MpiBackend's, of what can be executed. All ranks start the same batches in the same order.
  [[nodiscard]] std::unique_ptr<Execution> start(Batch batch) override;

 private:
  mpi::NativeContext context_;
};

}  // namespace kolo::backend
