// SPDX-License-Identifier: Apache-2.0
#include "backend/gpu/nccl/execution.hpp"

#include <thread>
#include <utility>

#include "backend/batch.hpp"
#include "kolo/error.hpp"

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

Collective::Collective(const LaunchContext& context, Batch batch)
    : context_(context),
      batch_(std::move(batch)),
      index_(index_of(context.rank, batch_)),
      aborted_(context.communicator.group().aborted_flag()) {}

std::shared_ptr<gpu::Completion> Collective::launch() {
  if (*aborted_) throw BackendError("NCCL's communicator was aborted");
  if (kind() == gpu::Completion::Kind::before_graph && gpu().runtime()->is_capturing(stream()))
    throw BackendError(
        "an operation in a GraphWarmUp came while another thread was capturing Kolo's operations "
        "into a CUDA graph, and would have become part of that graph");
  // The stream waits for the tensors, not this thread. If their stream is captured, it joins the
  // capture.
  gpu().await(batch_.tensors, stream());
  if (begin()) call_nccl();
  end();
  return std::make_shared<gpu::Completion>(gpu().runtime(), gpu().index(), stream(), kind());
}

gpu::Completion::Kind Collective::kind() const {
  using Kind = gpu::Completion::Kind;
  if (batch_.kind.device == gpu_of_graph) return Kind::captured;
  return stream() == gpu().graph_stream() ? Kind::before_graph : Kind::ordinary;
}

/// A call may return only after an abort, and report success. If it returns after the session has
/// left it behind, the communicator exists no more, but the flag does.
void Collective::call_nccl() {
  const auto library = communicator().group().shared_library();
  const CommHandle called = comm();
  Group group(*library, called);
  call();
  State now = group.end();
  while (now == State::in_progress && !*aborted_) {
    std::this_thread::yield();
    now = library->state(called);
  }
  if (*aborted_) throw BackendError("NCCL's communicator was aborted");
}

void GpuExecution::Launch::perform(Collective& collective) noexcept {
  try {
    completion = collective.launch();
  } catch (...) {
    error = std::current_exception();
  }
  // Release: pairs with the acquire in `step`, after which the driver reads the outcome.
  ended.store(true, std::memory_order_release);
}

/// A launch uses the batch's tensors, which the program may free after this.
GpuExecution::~GpuExecution() {
  if (stage_ == Stage::done) return;
  communicator().abort();
  if (stage_ == Stage::calling) {
    const auto deadline = std::chrono::steady_clock::now() + communicator().group().patience_left();
    while (!launch_->ended.load(std::memory_order_acquire) &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
  }
  if (stage_ != Stage::preparing) communicator().end_use();
}

Progress GpuExecution::step() {
  try {
    switch (stage_) {
      case Stage::preparing: return prepare_and_launch();
      case Stage::calling: return finish_launch();
      case Stage::running:
        if (!launch_->completion->is_done()) {
          // Throws if NCCL has failed, in which case the kernels may never end.
          static_cast<void>(communicator().ready());
          return Progress::waiting;
        }
        communicator().require_alive();  // an abort also ends kernels, but without results
        stage_ = Stage::done;
        communicator().end_use();
        if (const Batch& batch = collective_->batch(); batch.observer != nullptr)
          batch.observer->on_phase(batch.sequence, Phase::reduce, called_at_,
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

Progress GpuExecution::prepare_and_launch() {
  if (!has_numbers_) has_numbers_ = collective_->has_numbers();
  if (!has_numbers_ || !context_.order.is_next(place_) || !communicator().ready() ||
      !retire_others())
    return Progress::waiting;
  collective_->prepare();
  collective_->drop_numbers();
  called_at_ = std::chrono::steady_clock::now();
  stage_ = Stage::calling;
  communicator().begin_use();
  communicator().group().launch(
      [launch = launch_, collective = collective_] { launch->perform(*collective); });
  context_.order.serve();
  return launch_ends_soon() ? finish_launch() : Progress::moved;
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

/// A launch usually takes less than 50 us. A short wait here, within the time of a step, spares an
/// idle driver its pause.
bool GpuExecution::launch_ends_soon() const {
  constexpr int min_looks = 16;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(150);
  for (int look = 1; !launch_->ended.load(std::memory_order_acquire); ++look) {
    if (look >= min_looks && std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

Progress GpuExecution::finish_launch() {
  if (!launch_->ended.load(std::memory_order_acquire)) {
    // Throws if NCCL has failed, in which case the call may wait for another rank for ever.
    static_cast<void>(communicator().ready());
    return Progress::waiting;
  }
  if (launch_->error) std::rethrow_exception(launch_->error);
  communicator().require_alive();
  stage_ = Stage::running;
  return context_.blocking_wait ? Progress::moved : Progress::launched;
}

Awaited GpuExecution::waits_for() const {
  if (!has_numbers_) return collective_->waits_for_numbers();
  std::vector<int> others;
  for (const int rank : collective_->batch().ranks)
    if (rank != context_.rank) others.push_back(rank);
  switch (stage_) {
    case Stage::preparing: return {std::move(others), "to make NCCL's communicator"};
    case Stage::calling: return {std::move(others), "to begin with it over NCCL"};
    default: return {std::move(others), "to do it on their GPUs"};
  }
}

}  // namespace kolo::internal::backend::nccl
