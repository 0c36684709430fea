// SPDX-License-Identifier: Apache-2.0
#include "backend/gpu/nccl/execution.hpp"

#include <thread>
#include <utility>

#include "backend/batch.hpp"

namespace kolo::internal::backend::nccl {
namespace {

/// Closes the group even after an exception: otherwise the thread's next calls would belong to it.
class Group {
 public:
  Group(Library& library, CommHandle comm) : library_(library), comm_(comm) {
    library_.group_start();
  }
  ~Group() {
    if (!open_) return;
    try {
      static_cast<void>(library_.group_end(comm_));
    } catch (...) {  // keep the exception that is in flight
      open_ = false;
    }
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  State end() {
    open_ = false;
    return library_.group_end(comm_);
  }

 private:
  Library& library_;
  CommHandle comm_;
  bool open_ = true;
};

}  // namespace

GpuExecution::GpuExecution(const LaunchContext& context, Batch batch)
    : context_(context),
      batch_(std::move(batch)),
      index_(index_of(context.rank, batch_)),
      place_(context.order.queue_up()) {}

GpuExecution::~GpuExecution() {
  if (stage_ == Stage::done) return;
  communicator().abort();
  if (stage_ != Stage::preparing) communicator().end_use();
}

Progress GpuExecution::step() {
  try {
    switch (stage_) {
      case Stage::preparing: return prepare_and_call();
      case Stage::calling: return finish_calling();
      case Stage::running:
        if (!completion_->is_done()) {
          // Throws if NCCL has failed, in which case the kernels may never end.
          static_cast<void>(communicator().ready());
          return Progress::waiting;
        }
        communicator().require_alive();  // an abort also ends kernels, but without results
        stage_ = Stage::done;
        communicator().end_use();
        if (batch_.observer != nullptr)
          batch_.observer->on_phase(batch_.sequence, Phase::reduce, called_at_,
                                    std::chrono::steady_clock::now());
        break;
      case Stage::done: break;
    }
    return Progress::done;
  } catch (...) {
    communicator().abort();
    throw;
  }
}

Progress GpuExecution::prepare_and_call() {
  if (lacks_numbers()) is_gathered_ = gathered_->step() == Progress::done;
  if (lacks_numbers() || !context_.order.is_next(place_) || !communicator().ready() ||
      !retire_others())
    return Progress::waiting;
  called_at_ = std::chrono::steady_clock::now();
  // The stream waits for the tensors, not this thread.
  gpu().await(batch_.tensors, stream());
  stage_ = Stage::calling;
  communicator().begin_use();
  if (begin()) {
    Group group(library(), comm());
    call();
    if (group.end() == State::in_progress && !group_is_launched()) return Progress::moved;
  }
  return finish_calling();
}

/// Retires communicators in launch order: creation and destruction wait for the other ranks, so all
/// ranks must do them in the same order.
bool GpuExecution::retire_others() {
  for (Communicator* other : context_.to_retire)
    if (!other->idle()) return false;
  for (Communicator* other : context_.to_retire) other->retire(communicator());
  context_.to_retire.clear();
  return true;
}

/// NCCL launches a group on a non-blocking communicator from a thread of its own
/// (ncclGroupEndInternal), within about 50 us. A short wait here, within the time of a step, spares
/// an idle driver its pause.
bool GpuExecution::group_is_launched() {
  constexpr int min_looks = 16;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(150);
  for (int look = 1; !communicator().ready(); ++look) {
    if (look >= min_looks && std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

Progress GpuExecution::finish_calling() {
  if (!communicator().ready()) return Progress::waiting;
  end();
  completion_ = std::make_shared<gpu::Completion>(gpu().runtime(), gpu().index(), stream());
  context_.order.serve();
  stage_ = Stage::running;
  return context_.blocking_wait ? Progress::moved : Progress::launched;
}

Awaited GpuExecution::waits_for() const {
  if (lacks_numbers()) return gathered_->waits_for();
  std::vector<int> others;
  for (const int rank : batch_.ranks)
    if (rank != context_.rank) others.push_back(rank);
  switch (stage_) {
    case Stage::preparing: return {std::move(others), "to make NCCL's communicator"};
    case Stage::calling: return {std::move(others), "to begin with it over NCCL"};
    default: return {std::move(others), "to do it on their GPUs"};
  }
}

}  // namespace kolo::internal::backend::nccl
