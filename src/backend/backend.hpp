// SPDX-License-Identifier: Apache-2.0
// The interface of everything that executes an agreed batch. Nothing here blocks: the driver calls
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
class ReadyMark;
}

namespace kolo::internal::backend {

/// One tensor of a batch on this rank. Rows are slices of the first dimension. A tensor without
/// rows of its own has one row per element. Elements are `rows * row_elements`.
struct BatchTensor {
  const void* input = nullptr;  // read by all but string broadcasts and barriers
  void* output = nullptr;       // of allreduce, reducescatter and broadcast; may be the input
  std::string* text = nullptr;  // of string broadcasts
  DType dtype = DType::u8;
  std::int64_t rows = 0;  // of the input
  std::int64_t row_elements = 1;
  std::vector<std::int64_t> counts{};  // alltoall: rows for each rank of the batch's `ranks`
  Allocator allocate{};  // allgather, alltoall: gets the rows from each rank of the batch's `set`,
                         // 0 for ranks that take no part, and returns the memory for them
  std::shared_ptr<const gpu::ReadyMark> ready{};  // of a tensor on a GPU: when it may be accessed

  [[nodiscard]] std::int64_t elements() const { return rows * row_elements; }
  [[nodiscard]] std::int64_t row_bytes() const { return row_elements * signed_size_of(dtype); }
  [[nodiscard]] std::int64_t bytes() const { return rows * row_bytes(); }
};

/// `kind` has the properties that all tensors share; its own tensors are not used. Tensors have the
/// same order on all ranks, and differ between ranks only in addresses, in the `rows` of allgathers
/// and in `counts`. The tensors of a batch may differ in dtype. A BatchTensor and the memory that
/// it points to live until the execution is done.
struct Batch {
  Descriptor kind;
  std::vector<const BatchTensor*> tensors;
  std::vector<int> set;    // the process set: ranks of the world, ascending
  std::vector<int> ranks;  // those that take part: `set` but for ranks that have joined. This rank
                           // is one of them, and so is a broadcast's root
  std::int64_t divisor = 1;           // of averages
  std::uint64_t sequence = 0;         // the same on all its ranks, ascending
  std::uint64_t joins = 0;            // how often all ranks had joined before it; likewise
  std::uint64_t mark = 0;             // as Execute has it
  std::uint32_t part = 0;             // below `parts`: numbers the batches for one log entry
  PhaseObserver* observer = nullptr;  // outlives the execution; may be null

  /// The first part is for what ranks agree on beforehand, eight are for the chunks of a staged
  /// batch. Odd, so that the orders of consecutive entries alternate between odd and even.
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

  /// Reports nothing.
  void discard() { observer_ = nullptr; }

 private:
  PhaseObserver* observer_;
  std::uint64_t sequence_;
  Phase phase_;
  PhaseObserver::TimePoint begin_{};
};

/// The result of one step: no progress, since this rank waits for others; some progress; or the
/// end.
enum class Progress : std::uint8_t { waiting, moved, done };

/// The ranks that a running batch waits for, and for what: "to deposit piece 3". No ranks: unknown.
struct Awaited {
  std::vector<int> ranks{};
  std::string what{};
};

/// A running batch. Destroying one that is not done abandons it; the network may still write to its
/// tensors, so do that only when the process is about to end.
class Execution {
 public:
  virtual ~Execution() = default;

  /// Does at most about 200 us of work. After `done` the tensors hold the result, and `step` must
  /// not be called again. Throws BackendError.
  [[nodiscard]] virtual Progress step() = 0;

  /// For reports; between two steps.
  [[nodiscard]] virtual Awaited waits_for() const { return {}; }
};

/// Two ranks start the batches that they share in the same order, so that batches of different sets
/// may run side by side. One thread at a time.
class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::unique_ptr<Execution> start(Batch batch) = 0;

  /// Does what can be done for a batch before it is certain to run. The batch's other ranks may use
  /// the outcome if they begin the batch first. No other batch is started before the first step of
  /// the result, which starts the batch. Destroying the result before that withdraws the batch,
  /// which then no rank may begin. Null: nothing was done, and `start` does everything.
  [[nodiscard]] virtual std::unique_ptr<Execution> prepare(const Batch& /*batch*/) {
    return nullptr;
  }

  /// The session has failed: all ranks end what they have in common. Returns when neither the GPU
  /// nor another rank of the host uses this rank's tensors any more, or after some seconds.
  virtual void abandon() noexcept {}

  /// The same on all ranks. A batch starts only once the sequences of all batches that still run on
  /// this rank are less than this far behind its own.
  [[nodiscard]] virtual std::uint64_t sequence_span() const {
    return std::numeric_limits<std::uint64_t>::max();
  }
};

}  // namespace kolo::internal::backend
