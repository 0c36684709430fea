// SPDX-License-Identifier: Apache-2.0
// The base class of collectives over NCCL.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "backend/gpu/nccl/communicator.hpp"
#include "backend/gpu/runtime/completion.hpp"
#include "backend/gpu/runtime/gpu.hpp"
#include "backend/small_allgather.hpp"

namespace kolo::internal::backend::nccl {

/// The order in which batches are launched. It is the order in which they were started, which is
/// the same on all ranks. NCCL requires it: a kernel waits for the other ranks and blocks the rest
/// of the stream, so two ranks that launch two batches in different orders would wait for each
/// other forever. One order serves all communicators, since they share the GPU's stream.
class LaunchOrder {
 public:
  [[nodiscard]] std::uint64_t queue_up() { return queued_++; }
  [[nodiscard]] bool is_next(std::uint64_t place) const { return served_ == place; }
  void serve() { ++served_; }

 private:
  std::uint64_t queued_ = 0;
  std::uint64_t served_ = 0;
};

/// The objects that an execution uses. All outlive it.
struct LaunchContext {
  gpu::Gpu& gpu;
  Backend& cpu;
  Communicator& communicator;
  LaunchOrder& order;
  int rank;
  bool blocking_wait;                    // batches are not reported as launched
  std::vector<Communicator*> to_retire;  // communicators to retire before the launch
};

/// Waits until it is next in the launch order and the communicator is ready, launches all work on
/// the stream, and then only notices its end. An execution that is abandoned aborts all
/// communicators.
class GpuExecution : public Execution {
 public:
  GpuExecution(const LaunchContext& context, Batch batch);
  ~GpuExecution() override;
  GpuExecution(const GpuExecution&) = delete;
  GpuExecution& operator=(const GpuExecution&) = delete;

  Progress step() final;
  [[nodiscard]] Awaited waits_for() const final;
  [[nodiscard]] std::shared_ptr<gpu::Completion> completion() const final { return completion_; }

 protected:
  /// Launches the work before NCCL's. False if NCCL has nothing to do.
  virtual bool begin() = 0;
  /// Makes the calls of one NCCL group.
  virtual void call() = 0;
  /// Launches the work after NCCL's.
  virtual void end() {}

  /// Called by constructors: before `begin`, every rank gets the `own` bytes of every other.
  void exchange_numbers(std::span<const std::byte> own) {
    gathered_.emplace(context_.cpu, batch_, 1, own);
  }
  [[nodiscard]] const SmallAllgather& gathered() const { return *gathered_; }

  [[nodiscard]] const Batch& batch() const { return batch_; }
  [[nodiscard]] gpu::Gpu& gpu() const { return context_.gpu; }
  [[nodiscard]] Communicator& communicator() const { return context_.communicator; }
  [[nodiscard]] Library& library() const { return communicator().library(); }
  [[nodiscard]] CommHandle comm() const { return communicator().handle(); }
  [[nodiscard]] StreamHandle stream() const { return gpu().stream(); }
  [[nodiscard]] int size() const { return communicator().size(); }
  [[nodiscard]] int index() const { return index_; }

 private:
  enum class Stage : std::uint8_t { preparing, calling, running, done };

  [[nodiscard]] bool lacks_numbers() const { return gathered_ && !is_gathered_; }
  Progress prepare_and_call();
  [[nodiscard]] bool retire_others();
  [[nodiscard]] bool group_is_launched();
  Progress finish_calling();

  LaunchContext context_;
  Batch batch_;
  int index_;
  std::uint64_t place_;
  Stage stage_ = Stage::preparing;
  std::optional<SmallAllgather> gathered_{};
  bool is_gathered_ = false;
  std::shared_ptr<gpu::Completion> completion_{};
  std::chrono::steady_clock::time_point called_at_{};
};

[[nodiscard]] std::unique_ptr<Execution> make_allreduce(const LaunchContext& context, Batch batch);
[[nodiscard]] std::unique_ptr<Execution> make_reducescatter(const LaunchContext& context,
                                                            Batch batch);
/// Creates an allgather or alltoall.
[[nodiscard]] std::unique_ptr<Execution> make_gather(const LaunchContext& context, Batch batch);
[[nodiscard]] std::unique_ptr<Execution> make_broadcast(const LaunchContext& context, Batch batch);

}  // namespace kolo::internal::backend::nccl
