// SPDX-License-Identifier: Apache-2.0
// The interface of backends, which execute agreed batches. No function blocks: the driver calls
// `step` until it returns `done`.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/activity.hpp"
#include "base/descriptor.hpp"
#include "base/dtype.hpp"
#include "kolo/types.hpp"

namespace kolo::internal::backend::gpu {
class Completion;
class ReadyMark;
}  // namespace kolo::internal::backend::gpu

namespace kolo::internal::backend {

/// A tensor of a batch on this rank. Rows are slices of the first dimension; a tensor without
/// dimensions has one row per element. It has `rows * row_elements` elements.
struct BatchTensor {
  const void* input = nullptr;  // used by all operations but string broadcasts and barriers
  /// Used by allreduce, reducescatter and broadcast; may be the input.
  void* output = nullptr;
  std::string* text = nullptr;  // used by string broadcasts
  DType dtype = DType::u8;
  std::int64_t rows = 0;  // rows of the input
  std::int64_t row_elements = 1;
  std::vector<std::int64_t> counts{};  // alltoall: the rows for each of the batch's `ranks`
  /// Allgather and alltoall: gets the rows from each rank of the batch's `set`, 0 for ranks that
  /// take no part, and returns the memory for all of them.
  Allocator allocate{};
  std::shared_ptr<const gpu::ReadyMark> ready{};  // on a GPU: when the memory may be accessed

  [[nodiscard]] std::int64_t elements() const { return rows * row_elements; }
  [[nodiscard]] std::int64_t row_bytes() const { return row_elements * signed_size_of(dtype); }
  [[nodiscard]] std::int64_t bytes() const { return rows * row_bytes(); }
};

/// `kind` has the properties that all tensors share; its own tensors are not used. All ranks list
/// the tensors in the same order; they differ only in addresses, in the `rows` of allgathers and in
/// `counts`. The tensors of a batch may have different dtypes. A BatchTensor lives until the
/// execution is launched or done, the memory that it points to until it is done.
struct Batch {
  Descriptor kind;
  std::vector<const BatchTensor*> tensors;
  std::vector<int> set;  // the process set: ranks of the world, ascending
  /// The ranks that take part: `set` without ranks that have joined. They include this rank, and
  /// the root of a broadcast.
  std::vector<int> ranks;
  std::int64_t divisor = 1;    // for averages
  std::uint64_t sequence = 0;  // ascending; the same on all ranks
  std::uint64_t joins = 0;     // how often all ranks had joined before; the same on all ranks
  std::uint64_t mark = 0;      // `Execute::mark`
  std::uint32_t part = 0;      // below `parts`; distinguishes the batches of one log entry
  PhaseObserver* observer = nullptr;  // outlives the execution; may be null

  /// Part 0 is for agreements before the batch, and eight parts are for the chunks of a staged
  /// batch. The number is odd, so that the orders of consecutive entries alternate between odd and
  /// even, and the entries between the two lanes of shared memory.
  static constexpr std::uint64_t parts = 9;

  /// Strictly ascending, and the same on all ranks of the batch.
  [[nodiscard]] std::uint64_t order() const { return sequence * parts + part; }
};

/// Reports the time from its construction to its destruction as a phase of the batch.
class PhaseTimer {
 public:
  PhaseTimer(const Batch& batch, Phase phase)
      : observer_(batch.observer), sequence_(batch.sequence), phase_(phase) {
    if (observer_ != nullptr) begin_ = std::chrono::steady_clock::now();
  }
  ~PhaseTimer() {
    if (observer_ != nullptr)
      observer_->on_phase(sequence_, phase_, begin_, std::chrono::steady_clock::now());
  }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

  /// Keeps the timer from reporting anything.
  void discard() { observer_ = nullptr; }

 private:
  PhaseObserver* observer_;
  std::uint64_t sequence_;
  Phase phase_;
  PhaseObserver::TimePoint begin_{};
};

/// The result of a step: no progress, since this rank waits for others; some progress; all work is
/// queued on the GPU, which does it after the work of the streams that computed the tensors; or
/// completion.
enum class Progress : std::uint8_t { waiting, moved, launched, done };

/// The ranks that a running batch waits for, and their next action: "to deposit piece 3". No ranks
/// means that they are not known.
struct Awaited {
  std::vector<int> ranks{};
  std::string what{};
};

/// A running batch. Destroying one that is not done abandons it. The network may then still write
/// to its tensors, so abandon a batch only if the process is about to end.
class Execution {
 public:
  virtual ~Execution() = default;

  /// Does at most about 200 us of work. After `done` the tensors hold the result, and `step` must
  /// not be called again. After `launched`, which comes at most once, the execution no longer uses
  /// the BatchTensors, but their memory until `done`. Throws BackendError.
  [[nodiscard]] virtual Progress step() = 0;

  /// The current wait, as reports describe it. Called between two steps.
  [[nodiscard]] virtual Awaited waits_for() const { return {}; }

  /// The end of the work on the GPU. Valid after `launched`.
  [[nodiscard]] virtual std::shared_ptr<gpu::Completion> completion() const { return nullptr; }
};

/// Executes the batches of one rank. Any two ranks start the batches that they share in the same
/// order, so batches of different sets may run side by side. Used by one thread at a time.
class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::unique_ptr<Execution> start(Batch batch) = 0;

  /// Does the work that is possible before the batch is certain to run. The batch's other ranks may
  /// use the outcome of that work if they begin the batch first. No other batch starts before the
  /// first step of the result, which starts the batch. Destroying the result before that withdraws
  /// the batch, and then no rank may begin it. Null: nothing was done, and `start` does all the
  /// work.
  [[nodiscard]] virtual std::unique_ptr<Execution> prepare(const Batch& /*batch*/) {
    return nullptr;
  }

  /// Called on all ranks after the session has failed, to end the work that they share. Returns
  /// when neither the GPU nor another rank of the host accesses this rank's tensors any more, or
  /// after some seconds.
  virtual void abandon() noexcept {}

  /// The limit on the distance between the sequences of batches that run side by side, the same on
  /// all ranks. A batch starts only if its lead over every running batch is below this limit.
  [[nodiscard]] virtual std::uint64_t sequence_span() const {
    return std::numeric_limits<std::uint64_t>::max();
  }
};

}  // namespace kolo::internal::backend
