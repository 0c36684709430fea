// What executes an agreed batch. Nothing here blocks: the driver calls `step` until it says done.
#pragma once

#include <chrono>
#include <cstdint>
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

/// One tensor of a batch on this rank. Rows are slices of the first dimension; what has no rows of
/// its own is one row per element. Elements are `rows * row_elements`.
struct BatchTensor {
  const void* input = nullptr;  // read by all but text broadcasts and barriers
  void* output = nullptr;       // of allreduce, reducescatter and broadcast; may be the input
  std::string* text = nullptr;  // of text broadcasts
  DType dtype = DType::u8;
  std::int64_t rows = 0;  // of the input
  std::int64_t row_elements = 1;
  std::vector<std::int64_t> counts{};  // alltoall: rows for each rank of the batch's `ranks`
  Allocator allocate{};  // allgather, alltoall: is told the rows from each rank of the batch's
                         // `set`, 0 for those that take no part, and gives the memory for them
  std::shared_ptr<const gpu::ReadyMark> ready{};  // of a tensor on a GPU: when it may be touched

  [[nodiscard]] std::int64_t elements() const { return rows * row_elements; }
  [[nodiscard]] std::int64_t row_bytes() const { return row_elements * signed_size_of(dtype); }
  [[nodiscard]] std::int64_t bytes() const { return rows * row_bytes(); }
};

/// `kind` says what all tensors have in common; its tensors are of no meaning here. Tensors are in
/// the same order on all ranks, and alike but for `rows` of allgathers, `counts`, and addresses.
/// They may differ in dtype. BatchTensor and what it points to live until the execution is done.
struct Batch {
  Descriptor kind;
  std::vector<const BatchTensor*> tensors;
  std::vector<int> set;    // the process set: ranks of the world, ascending
  std::vector<int> ranks;  // those that take part: `set` but for ranks that have joined. This rank
                           // is one of them, and so is a broadcast's root
  std::int64_t divisor = 1;           // of averages
  std::uint64_t sequence = 0;         // the same on all its ranks, ascending
  std::uint32_t part = 0;             // below `parts`: of batches that serve one entry of the log
  PhaseObserver* observer = nullptr;  // outlives the execution; null if nobody wants to know

  /// Odd, so that entries that follow each other have orders that are odd and even in turn.
  static constexpr std::uint64_t parts = 9;

  /// The same on all its ranks, strictly ascending.
  [[nodiscard]] std::uint64_t order() const { return sequence * parts + part; }
};

/// The time from its making to its end is a phase of the batch, if anybody wants to know.
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

  /// Nothing was done.
  void discard() { observer_ = nullptr; }

 private:
  PhaseObserver* observer_;
  std::uint64_t sequence_;
  Phase phase_;
  PhaseObserver::TimePoint begin_{};
};

/// What one step achieved: nothing, since others are awaited; something; or all there was to do.
enum class Progress : std::uint8_t { waiting, moved, done };

/// Whom a batch under way waits for, and what they are to do: "to deposit piece 3". No ranks: it
/// cannot be said.
struct Awaited {
  std::vector<int> ranks{};
  std::string what{};
};

/// A batch under way. Destroying one that is not done abandons it; the memory of its tensors may
/// still be written by the network, so only do that when the process is about to end.
class Execution {
 public:
  virtual ~Execution() = default;

  /// Does at most about 200 us of work. Once it says `done`, the tensors hold the result, and it
  /// must not be called again. Throws BackendError.
  [[nodiscard]] virtual Progress step() = 0;

  /// For reports; between two steps.
  [[nodiscard]] virtual Awaited waits_for() const { return {}; }
};

/// Two ranks start the batches that both take part in in the same order, so that batches of
/// different sets may run side by side. One thread at a time.
class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::unique_ptr<Execution> start(Batch batch) = 0;
};

}  // namespace kolo::internal::backend
