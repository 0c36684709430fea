// SPDX-License-Identifier: Apache-2.0
#include "backend/gpu/nccl/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
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

void release_buffers(Library& library, CommState& state) {
  for (const CommState::Buffer& buffer : state.buffers) library.release(buffer.memory);
  state.buffers.clear();
}

/// Creates a communicator step by step, within a time for all of them. Each step returns why it has
/// failed.
class Creation {
 public:
  Creation(Library& library, const std::atomic<bool>& canceled, std::chrono::nanoseconds timeout)
      : library_(library),
        canceled_(canceled),
        timeout_(timeout),
        clock_(steady_clock::now()),
        deadline_(clock_.now() + timeout) {}

  std::string init(CommHandle& made, int size, const UniqueId& id, int rank) {
    State now = library_.init(made, size, id, rank);
    while (now == State::in_progress) {
      if (std::string error = pause_in("ncclCommInitRankConfig"); !error.empty()) return error;
      now = library_.state(made);
    }
    return "";
  }
  std::string shrink(CommHandle& made, CommHandle parent, const std::vector<int>& excluded) {
    library_.shrink(made, parent, excluded);
    return wait_for_child(made, parent, "ncclCommShrink");
  }
  std::string split(CommHandle& made, CommHandle parent) {
    library_.split(made, parent);
    return wait_for_child(made, parent, "ncclCommSplit");
  }

 private:
  /// The child exists once the parent is ready and the child's handle is no longer null:
  /// ncclCommInitRankFunc writes the handle at its end, and ncclCommGetAsyncError(NULL) is an
  /// invalid argument.
  std::string wait_for_child(CommHandle& made, CommHandle parent, const char* call) {
    for (;;) {
      if (std::string error = pause_in(call); !error.empty()) return error;
      if (library_.state(parent) == State::in_progress) continue;
      // A thread of NCCL writes the handle.
      const CommHandle child = std::atomic_ref(made).load(std::memory_order_acquire);
      if (child != nullptr && library_.state(child) == State::ready) return "";
    }
  }
  std::string pause_in(const char* call) {
    if (canceled_) return "creation of the NCCL communicator was canceled";
    static_cast<void>(clock_.advance(steady_clock::now()));
    if (clock_.now() >= deadline_)
      return fmt::format("{} is not done after {} s", call,
                         std::chrono::duration<double>(timeout_).count());
    std::this_thread::sleep_for(pause);
    return "";
  }

  Library& library_;
  const std::atomic<bool>& canceled_;
  std::chrono::nanoseconds timeout_;
  SessionClock clock_;
  SessionClock::TimePoint deadline_;
};

/// The communicator for collectives, once its root exists.
std::string finish(Creation& creation, Library& library, CommState& state) {
  if (library.can_derive()) return creation.split(state.handle, state.root);
  state.handle = std::exchange(state.root, nullptr);
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
  const auto deadline = steady_clock::now() + patience_left();
  bool stopped = true;
  for (Worker* worker : {&launcher_, &destroyer_, &worker_})
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

void CommunicatorGroup::make(std::shared_ptr<CommState> state,
                             std::function<std::string(Library&, CommState&)> make_all) {
  worker_.post([state = std::move(state), make_all = std::move(make_all), library = library_,
                runtime = gpu_.runtime(), device = gpu_.index()] {
    std::string error;
    try {
      const gpu::DeviceGuard guard(*runtime, device);
      error = make_all(*library, *state);
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
      library.deregister_buffer(state->handle, buffer.registration);
    library.destroy(state->handle);
    if (state->root != nullptr) library.destroy(state->root);
    release_buffers(library, *state);
  });
}

void CommunicatorGroup::launch(std::function<void()> work) {
  post_to(launcher_, [work = std::move(work)](Library&) { work(); });
}

/// NCCL's kernels use the buffers until the abort has returned, and the copies launched behind them
/// even longer. If they found the memory unmapped, the process would keep that error, and the
/// program could not save the contents of the GPU. A half-made communicator is ended by the abort
/// of its parent, which then writes the child's handle.
void CommunicatorGroup::abort() noexcept {
  if (aborted()) return;
  aborted_at_ = steady_clock::now();
  *aborted_ = true;
  for (const auto& state : states_) state->canceled = true;
  try {
    post([states = states_, runtime = gpu_.runtime(), streams = gpu_.nccl_streams(),
          calls_end = launcher_.idle_within(patience_)](Library& library) {
      std::vector<const CommHandle*> handles;
      for (const auto& state : states)
        for (const CommHandle* handle : {&state->root, &state->handle}) handles.push_back(handle);
      if (!library.abort(handles, calls_end)) return;
      for (const gpu::StreamHandle stream : streams) runtime->synchronize(stream);
      for (const auto& state : states)
        if (!state->keeps_buffers) release_buffers(library, *state);
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
    group_.make(state_, [size = size(), own = own_, id = id_, timeout = timeout_](
                            Library& library, CommState& state) {
      Creation creation(library, state.canceled, timeout);
      std::string error = creation.init(state.root, size, id, own);
      return error.empty() ? finish(creation, library, state) : error;
    });
    return;
  }
  if (!parent_->ready()) return;
  std::vector<int> excluded;  // indices among the parent's ranks
  for (int place = 0; place < parent_->size(); ++place)
    if (!std::ranges::binary_search(ranks_, parent_->ranks_[static_cast<std::size_t>(place)]))
      excluded.push_back(place);
  state_ = group_.add();
  state_->keeps_buffers = excluded.empty();
  // Nothing else runs on the parent's root: ncclCommShrink and ncclCommSplit require it.
  group_.make(state_, [parent = parent_->state_, excluded, timeout = timeout_](Library& library,
                                                                               CommState& state) {
    Creation creation(library, state.canceled, timeout);
    if (excluded.empty()) return creation.split(state.handle, parent->root);
    std::string error = creation.shrink(state.root, parent->root, excluded);
    return error.empty() ? finish(creation, library, state) : error;
  });
}

void Communicator::require_alive() const {
  if (group_.aborted()) throw BackendError("NCCL's communicator was aborted");
}

bool Communicator::ready() {
  require_alive();
  if (handle_ != nullptr) {
    static_cast<void>(library().state(handle_));  // throws
    return true;
  }
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

/// The registration waits for other ranks. It may return when the session has left it behind: then
/// the group exists no more.
std::byte* Communicator::buffer(std::size_t bytes) {
  const auto library = group_.shared_library();
  const auto aborted = group_.aborted_flag();
  const auto require_in_session = [&] {
    if (*aborted) throw BackendError("NCCL's communicator was aborted");
  };
  constexpr std::size_t min_bytes = std::size_t{1} << 20;
  std::vector<CommState::Buffer>& buffers = state_->buffers;
  if (buffers.empty() || buffers.back().bytes < bytes) {
    // Smaller buffers stay, because the stream may still use them. Sizes are different powers of
    // two, so together they are smaller than the new buffer.
    const std::size_t size = std::bit_ceil(std::max(bytes, min_bytes));
    CommState::Buffer& made = buffers.emplace_back();
    try {
      made = {library->allocate(size), size, {}};
    } catch (...) {
      buffers.pop_back();
      throw;
    }
    require_in_session();
    made.registration = library->register_buffer(handle_, made.memory, size);
    require_in_session();
  }
  return buffers.back().memory;
}

}  // namespace kolo::internal::backend::nccl
