// SPDX-License-Identifier: Apache-2.0
// One row's measurement: a Kolo operation on some buffers, and MPI's equivalent on the same ones.
#pragma once

#include <cstdint>
#include <kolo/collectives.hpp>
#include <kolo/cuda.hpp>
#include <kolo/tensor.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradient_sets.hpp"
#include "options.hpp"
#include "world.hpp"

namespace perf {

enum class Side : std::uint8_t { kolo, mpi };

/// One row to measure.
struct Case {
  Operation operation = Operation::allreduce;
  std::int64_t bytes = 0;  ///< Requested size; unused for gradients and barriers.
  kolo::DType dtype = kolo::DType::f32;
  kolo::ReduceOp reduce_op = kolo::ReduceOp::sum;
  std::string gradients{};     ///< Name of the set of gradients; empty for one operation.
  std::optional<Peer> peer{};  ///< Set for gradients only.
  Memory memory = Memory::own;
  std::optional<kolo::CudaDevice> gpu{};  ///< Set if the tensors are on a GPU.
};

/// The buffers of this rank, and the operation on them.
class Workload {
 public:
  virtual ~Workload() = default;

  /// Prepares the buffers. Each iteration has its own `phase`, and so its own data.
  virtual void fill(Side side, std::int64_t phase) = 0;
  /// The part that is timed. Collective.
  virtual void run(Side side) = 0;
  /// Copies results to host memory for `count_wrong`.
  virtual void fetch() = 0;
  /// Counts elements that differ from the result of `fill` with this phase and `run`.
  [[nodiscard]] virtual std::int64_t count_wrong(Side side, std::int64_t phase) const = 0;
  /// True if MPI has an equivalent: MPI does not reduce f16 and bf16, its counts are int, and
  /// kolo-perf does not pass it GPU tensors.
  [[nodiscard]] virtual bool has_peer() const = 0;

  /// Elements as nccl-tests counts them: of the tensor for allreduce and broadcast, of one rank's
  /// output for allgather, of one rank's input for alltoall and reducescatter.
  [[nodiscard]] virtual std::int64_t elements() const = 0;
  [[nodiscard]] virtual std::int64_t tensors() const = 0;
};

/// Throws UsageError for an unknown set of gradients.
[[nodiscard]] std::unique_ptr<Workload> make_workload(const Case& row, const World& world);

// The two kinds, each in its own file.
[[nodiscard]] std::unique_ptr<Workload> make_collective_workload(const Case& row,
                                                                 const World& world);
[[nodiscard]] std::unique_ptr<Workload> make_gradient_workload(Gradients gradients, const Case& row,
                                                               const World& world);

/// The rows that the options request.
[[nodiscard]] std::vector<Case> plan_rows(const Options& options);

}  // namespace perf
