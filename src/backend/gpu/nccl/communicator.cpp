// SPDX-License-Identifier: Apache-2.0
#include "backend/gpu/nccl/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "backend/gpu/runtime/handles.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/rank_set.hpp"
#include "base/session_clock.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend::nccl {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds pause{1};  // between two queries of the state

}  // namespace

struct Worker::Shared {
  std::mutex mutex{};
  std::condition_variable changed{};
  std::deque<std::function<void()>> work{};
  std::thread thread{};
  bool stopping = false;
  bool stopped = false;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stopping || !work.empty(); });
      if (work.empty()) break;
      const std::function<void()> next = std::move(work.front());
      work.pop_front();
      lock.unlock();
      next();
      lock.lock();
    }
    stopped = true;
    changed.notify_all();
  }
};

Worker::Worker() : shared_(std::make_shared<Shared>()) {}

Worker::~Worker() {
  if (shared_->thread.joinable()) shared_->thread.detach();
}

bool Worker::stop(std::chrono::nanoseconds patience) {
  if (!shared_->thread.joinable()) return true;
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.notify_all();
  const bool stopped =
      shared_->changed.wait_for(lock, patience, [this] { return shared_->stopped; });
  lock.unlock();
  // A thread that has not stopped is detached by the destructor.
  if (stopped) shared_->thread.join();
  return stopped;
}

void Worker::post(std::function<void()> work) {
  const std::lock_guard lock(shared_->mutex);
  shared_->work.push_back(std::move(work));
  if (!shared_->thread.joinable())
    // The thread shares the ownership of its state, since it may outlive the worker.
    shared_->thread = std::thread([shared = shared_] { shared->run(); });
  shared_->changed.notify_all();
}

namespace {

void release_buffers(Library& library, CommState& state) {
  for (const CommState::Buffer& buffer : state.buffers) library.release(buffer.memory);
  state.buffers.clear();
}

/// Waits until a communicator exists, whether it is created anew or shrunk from `parent`. A shrunk
/// one exists once the parent is ready and the child's handle is no longer null:
/// ncclCommInitRankFunc writes the handle at its end, and ncclCommGetAsyncError(NULL) is an invalid
/// argument. `now` is the state of a communicator without a parent.
std::string wait_until_made(Library& library, CommState& state, CommHandle parent, State now,
                            const char* call, std::chrono::nanoseconds timeout) {
  SessionClock clock(steady_clock::now());
  const auto deadline = clock.now() + timeout;
  CommHandle watched = parent != nullptr ? parent : state.handle;
  while (now == State::in_progress) {
    if (state.canceled) return "creation of the NCCL communicator was canceled";
    static_cast<void>(clock.advance(steady_clock::now()));
    if (clock.now() >= deadline)
      return fmt::format("{} is not done after {} s", call,
                         std::chrono::duration<double>(timeout).count());
    std::this_thread::sleep_for(pause);
    now = library.state(watched);
    if (now == State::ready && watched == parent) {
      // A thread of NCCL writes the handle.
      const CommHandle made = std::atomic_ref(state.handle).load(std::memory_order_acquire);
      if (made != nullptr) watched = made;
      now = State::in_progress;
    }
  }
  return "";
}

/// Advice for an error that a capture causes. NCCL creates communicators in threads of its own,
/// which no caller can exempt from captures.
std::string_view advice_for(std::string_view error) {
  if (error.find("stream is capturing") == std::string_view::npos) return "";
  return ". Another thread was capturing a CUDA graph in global mode, which forbids NCCL's own "
         "threads to use CUDA, and that capture is broken, too: run each collective of GPU tensors "
         "once before the first capture, or capture with cudaStreamCaptureModeThreadLocal";
}

}  // namespace

CommunicatorGroup::~CommunicatorGroup() {
  const auto deadline = steady_clock::now() + patience_;
  bool stopped = true;
  for (Worker* worker : {&destroyer_, &worker_})
    stopped = worker->stop(deadline - steady_clock::now()) && stopped;
  if (stopped) return;
  log(LogLevel::warning, "an NCCL call does not return; its thread and GPU memory are leaked");
  gpu_.leak();
}

template <typename Work>
void CommunicatorGroup::post(Work work) {
  post_to(worker_, std::move(work));
}

template <typename Work>
void CommunicatorGroup::post_to(Worker& worker, Work work) {
  worker.post([library = library_, runtime = gpu_.runtime(), device = gpu_.index(),
               work = std::move(work)] {
    try {
      std::optional<gpu::DeviceGuard> guard;
      try {
        guard.emplace(*runtime, device);
      } catch (const BackendError& error) {
        // After a kernel's fault every call of CUDA fails, but NCCL must still be told to end.
        log(LogLevel::warning, error.what());
      }
      work(*library);
    } catch (const std::exception& error) {
      log(LogLevel::warning, fmt::format("an NCCL communicator is leaked: {}", error.what()));
    }
  });
}

std::shared_ptr<CommState> CommunicatorGroup::add() {
  return states_.emplace_back(std::make_shared<CommState>());
}

void CommunicatorGroup::make(std::shared_ptr<CommState> state, std::shared_ptr<CommState> parent,
                             const char* call, std::chrono::nanoseconds timeout,
                             std::function<State(Library&, CommState&)> begin) {
  worker_.post([state = std::move(state), parent = std::move(parent), call, timeout,
                begin = std::move(begin), library = library_, runtime = gpu_.runtime(),
                device = gpu_.index()] {
    std::string error;
    try {
      const gpu::DeviceGuard guard(*runtime, device);
      const State now = begin(*library, *state);
      error = wait_until_made(*library, *state, parent != nullptr ? parent->handle : nullptr, now,
                              call, timeout);
    } catch (const std::exception& failure) {
      error = failure.what();
    }
    const std::lock_guard lock(state->mutex);
    state->error = std::move(error);
    state->done = true;
  });
}

/// Runs in a thread of its own: NCCL waits for the other ranks of the host (commFree: the proxy's
/// thread), and for all kernels wherever it calls cudaFree. If another rank fails before it
/// destroys its part, only aborts of the other communicators end their kernels.
void CommunicatorGroup::destroy(const std::shared_ptr<CommState>& state) {
  std::erase(states_, state);
  post_to(destroyer_, [state](Library& library) {
    for (const CommState::Buffer& buffer : state->buffers)
      if (buffer.registration != nullptr)
        library.deregister_buffer(state->handle, buffer.registration);
    library.destroy(state->handle);
    release_buffers(library, *state);
  });
}

/// NCCL's kernels use the buffers until the abort has returned, and the copies launched behind them
/// even longer. If they found the memory unmapped, the process would keep that error, and the
/// program could not save the contents of the GPU. A half-made communicator is ended by the abort
/// of its parent, which then writes the child's handle.
void CommunicatorGroup::abort() noexcept {
  if (std::exchange(aborted_, true)) return;
  for (const auto& state : states_) state->canceled = true;
  try {
    post([states = states_, runtime = gpu_.runtime(), stream = gpu_.stream()](Library& library) {
      std::vector<const CommHandle*> handles;
      for (const auto& state : states) handles.push_back(&state->handle);
      library.abort(handles);
      runtime->synchronize(stream);
      for (const auto& state : states) release_buffers(library, *state);
    });
  } catch (...) {  // no memory, or no thread: the communicators leak
    log(LogLevel::warning, "NCCL's communicators cannot be aborted");
  }
}

Communicator::Communicator(CommunicatorGroup& group, std::vector<int> ranks, int own,
                           const UniqueId& id, std::chrono::nanoseconds timeout)
    : group_(group), ranks_(std::move(ranks)), own_(own), id_(id), timeout_(timeout) {}

Communicator::Communicator(CommunicatorGroup& group, Communicator& parent, std::vector<int> ranks,
                           std::chrono::nanoseconds timeout)
    : group_(group), ranks_(std::move(ranks)), parent_(&parent), timeout_(timeout) {}

Communicator::~Communicator() {
  if (handle_ != nullptr && !group_.aborted()) group_.destroy(state_);
}

void Communicator::begin_to_make() {
  if (parent_ == nullptr) {
    state_ = group_.add();
    group_.make(state_, nullptr, "ncclCommInitRankConfig", timeout_,
                [size = size(), own = own_, id = id_](Library& nccl, CommState& state) {
                  return nccl.init(state.handle, size, id, own);
                });
    return;
  }
  // ncclCommShrink requires that nothing is in progress on the parent.
  if (!parent_->ready() || !parent_->idle()) return;
  std::vector<int> excluded;  // indices among the parent's ranks
  for (int place = 0; place < parent_->size(); ++place)
    if (!std::ranges::binary_search(ranks_, parent_->ranks_[static_cast<std::size_t>(place)]))
      excluded.push_back(place);
  state_ = group_.add();
  group_.make(state_, parent_->state_, "ncclCommShrink", timeout_,
              [parent = parent_->handle_, excluded](Library& nccl, CommState& state) {
                nccl.shrink(state.handle, parent, excluded);
                return State::in_progress;
              });
}

void Communicator::require_alive() const {
  if (group_.aborted()) throw BackendError("NCCL's communicator was aborted");
}

bool Communicator::ready() {
  require_alive();
  if (handle_ != nullptr) return library().state(handle_) == State::ready;
  if (state_ == nullptr) begin_to_make();
  if (state_ == nullptr) return false;
  const std::lock_guard lock(state_->mutex);
  if (!state_->done) return false;
  if (!state_->error.empty())
    throw BackendError(fmt::format("cannot create the NCCL communicator for ranks {}: {}{}",
                                   to_string(RankSet::of(ranks_)), state_->error,
                                   advice_for(state_->error)));
  handle_ = state_->handle;
  return true;
}

void Communicator::retire(Communicator& parent) {
  parent_ = &parent;
  if (handle_ == nullptr) return;
  group_.destroy(state_);
  state_.reset();
  handle_ = nullptr;
}

std::byte* Communicator::buffer(std::size_t bytes) {
  constexpr std::size_t min_bytes = std::size_t{1} << 20;
  std::vector<CommState::Buffer>& buffers = state_->buffers;
  if (buffers.empty() || buffers.back().bytes < bytes) {
    // Smaller buffers stay, because the stream may still use them. Sizes are different powers of
    // two, so together they are smaller than the new buffer.
    const std::size_t size = std::bit_ceil(std::max(bytes, min_bytes));
    CommState::Buffer& made = buffers.emplace_back();
    try {
      made = {library().allocate(size), size, nullptr};
    } catch (...) {
      buffers.pop_back();
      throw;
    }
    made.registration = library().register_buffer(handle_, made.memory, size);
  }
  return buffers.back().memory;
}

}  // namespace kolo::internal::backend::nccl
