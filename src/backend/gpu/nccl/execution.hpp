// SPDX-License-Identifier: Apache-2.0
// Collectives over NCCL, and their executions.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <utility>
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
/// other forever. One order serves all communicators: a call may wait for other ranks, too. Kernels
/// of two communicators may still begin in another order, since streams wait for tensors; then the
/// GPU must have room for both.
class LaunchOrder {
 public:
  [[nodiscard]] std::uint64_t queue_up() { return queued_++; }
  [[nodiscard]] bool is_next(std::uint64_t place) const { return served_ == place; }
  void serve() { ++served_; }

 private:
  std::uint64_t queued_ = 0;
  std::uint64_t served_ = 0;
};

/// The objects that a collective uses. All outlive it.
struct LaunchContext {
  gpu::Gpu& gpu;
  StreamHandle stream;
  Backend& cpu;
  Communicator& communicator;
  LaunchOrder& order;
  int rank;
  bool blocking_wait;                    // batches are not reported as launched
  std::size_t reserve;                   // bytes of the buffer that later batches may need
  std::vector<Communicator*> to_retire;  // communicators to retire before the launch
};

/// The work that a batch launches on the stream. The driver constructs and prepares it, and then
/// leaves it to the launching thread.
class Collective {
 public:
  Collective(const LaunchContext& context, Batch batch);
  virtual ~Collective() = default;
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  [[nodiscard]] const Batch& batch() const { return batch_; }

  // For the driver:
  /// Advances the exchange of numbers. True once it is done.
  [[nodiscard]] bool has_numbers() { return !gathered_ || gathered_->step() == Progress::done; }
  [[nodiscard]] Awaited waits_for_numbers() const {
    return gathered_ ? gathered_->waits_for() : Awaited{};
  }
  /// Called right before the launch: may call allocators of the program.
  virtual void prepare() {}
  /// The exchange belongs to the driver, and the launching thread may be the last with this object.
  void drop_numbers() { gathered_.reset(); }

  /// For the launching thread: launches all work. The result is its end.
  [[nodiscard]] std::shared_ptr<gpu::Completion> launch();

 protected:
  /// Launches the work before NCCL's. False if NCCL has nothing to do.
  virtual bool begin() = 0;
  /// Makes the calls of one NCCL group.
  virtual void call() = 0;
  /// Launches the work after NCCL's.
  virtual void end() {}

  /// Called by constructors: before `prepare`, every rank gets the `own` bytes of every other.
  void exchange_numbers(std::span<const std::byte> own) {
    gathered_.emplace(context_.cpu, batch_, 1, own);
  }
  [[nodiscard]] const SmallAllgather& gathered() const { return *gathered_; }

  [[nodiscard]] gpu::Gpu& gpu() const { return context_.gpu; }
  [[nodiscard]] Communicator& communicator() const { return context_.communicator; }
  [[nodiscard]] Library& library() const { return communicator().library(); }
  [[nodiscard]] CommHandle comm() const { return communicator().handle(); }
  [[nodiscard]] StreamHandle stream() const { return context_.stream; }
  [[nodiscard]] std::size_t reserve() const { return context_.reserve; }
  [[nodiscard]] int size() const { return communicator().size(); }
  [[nodiscard]] int index() const { return index_; }

 private:
  void call_nccl();
  [[nodiscard]] gpu::Completion::Kind kind() const;

  LaunchContext context_;
  Batch batch_;
  int index_;
  std::shared_ptr<const std::atomic<bool>> aborted_;
  std::optional<SmallAllgather> gathered_{};
};

/// Waits until it is next in the launch order and the communicator is ready, has the collective
/// launched, and then only notices its end. An execution that is abandoned aborts all
/// communicators.
class GpuExecution final : public Execution {
 public:
  GpuExecution(const LaunchContext& context, std::shared_ptr<Collective> collective)
      : context_(context), collective_(std::move(collective)), place_(context.order.queue_up()) {}
  ~GpuExecution() override;
  GpuExecution(const GpuExecution&) = delete;
  GpuExecution& operator=(const GpuExecution&) = delete;

  Progress step() override;
  [[nodiscard]] Awaited waits_for() const override;
  [[nodiscard]] std::shared_ptr<gpu::Completion> completion() const override {
    return stage_ == Stage::running || stage_ == Stage::done ? launch_->completion : nullptr;
  }

 private:
  enum class Stage : std::uint8_t { preparing, calling, running, done };
  /// The outcome, which the launching thread writes before `ended`.
  struct Launch {
    std::shared_ptr<gpu::Completion> completion{};
    std::exception_ptr error{};
    std::atomic<bool> ended{false};

    void perform(Collective& collective) noexcept;
  };

  Progress prepare_and_launch();
  [[nodiscard]] bool retire_others();
  [[nodiscard]] bool launch_ends_soon() const;
  Progress finish_launch();
  [[nodiscard]] Communicator& communicator() const { return context_.communicator; }

  LaunchContext context_;
  std::shared_ptr<Collective> collective_;  // shared with the launching thread, as is the next
  std::shared_ptr<Launch> launch_ = std::make_shared<Launch>();
  std::uint64_t place_;
  Stage stage_ = Stage::preparing;
  bool has_numbers_ = false;
  std::chrono::steady_clock::time_point called_at_{};
};

[[nodiscard]] std::shared_ptr<Collective> make_allreduce(const LaunchContext& context, Batch batch);
[[nodiscard]] std::shared_ptr<Collective> make_reducescatter(const LaunchContext& context,
                                                             Batch batch);
/// Creates an allgather or alltoall.
[[nodiscard]] std::shared_ptr<Collective> make_gather(const LaunchContext& context, Batch batch);
[[nodiscard]] std::shared_ptr<Collective> make_broadcast(const LaunchContext& context, Batch batch);

}  // namespace kolo::internal::backend::nccl
