// What one row measures: an operation of Kolo on some buffers, and MPI's equivalent on the same.
#pragma once

#include <cstdint>
#include <kolo/collectives.hpp>
#include <kolo/cuda.hpp>
#include <kolo/tensor.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "options.hpp"
#include "world.hpp"

namespace perf {

enum class Side : std::uint8_t { kolo, mpi };

/// A row to be measured.
struct Case {
  Operation operation = Operation::allreduce;
  std::int64_t bytes = 0;  ///< Asked for; unused for gradients and barriers.
  kolo::DType dtype = kolo::DType::f32;
  kolo::ReduceOp reduce_op = kolo::ReduceOp::sum;
  std::string gradients{};     ///< The set's name, if it is one.
  std::optional<Peer> peer{};  ///< For gradients.
  Memory memory = Memory::own;
  std::optional<kolo::CudaDevice> gpu{};  ///< If the tensors are on one.
};

/// All calls concern this rank's buffers.
class Workload {
 public:
  virtual ~Workload() = default;

  /// Prepares the buffers. `phase` makes this iteration's data different from the others'.
  virtual void fill(Side side, std::int64_t phase) = 0;
  /// What is timed. Collective.
  virtual void run(Side side) = 0;
  /// Brings results back to where they are looked at.
  virtual void fetch() = 0;
  /// Elements that are not what `fill` with this phase and `run` must have made.
  [[nodiscard]] virtual std::int64_t count_wrong(Side side, std::int64_t phase) const = 0;
  /// Whether MPI has an equivalent. It does not reduce f16 and bf16, its counts are int, and it is
  /// not asked for tensors on GPUs.
  [[nodiscard]] virtual bool has_peer() const = 0;

  /// As nccl-tests counts them: of the tensor that is reduced or broadcast, of what an allgather
  /// gives to a rank, of what a rank puts into an alltoall or a reducescatter.
  [[nodiscard]] virtual std::int64_t elements() const = 0;
  [[nodiscard]] virtual std::int64_t tensors() const = 0;
};

/// Throws UsageError for gradients that cannot be found.
[[nodiscard]] std::unique_ptr<Workload> make_workload(const Case& row, const World& world);

/// The rows that the options ask for.
[[nodiscard]] std::vector<Case> plan_rows(const Options& options);

}  // namespace perf
