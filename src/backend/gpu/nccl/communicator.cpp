// SPDX-License-Identifier: Apache-2.0
#include "backend/gpu/nccl/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/format.hpp"
#include "base/log.hpp"
#include "base/rank_set.hpp"
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

Worker::Worker(std::chrono::nanoseconds patience)
    : patience_(patience), shared_(std::make_shared<Shared>()) {}

Worker::~Worker() {
  if (!shared_->thread.joinable()) return;
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.notify_all();
  const bool stopped =
      shared_->changed.wait_for(lock, patience_, [this] { return shared_->stopped; });
  lock.unlock();
  if (stopped) {
    shared_->thread.join();
    return;
  }
  log(LogLevel::warning, "NCCL does not return from a call; its thread is left behind");
  shared_->thread.detach();
}

void Worker::post(std::function<void()> work) {
  const std::lock_guard lock(shared_->mutex);
  shared_->work.push_back(std::move(work));
  if (!shared_->thread.joinable())
    shared_->thread = std::thread([shared = shared_] { shared->run(); });
  shared_->changed.notify_all();
}

void Deregister::operator()(std::byte* memory) const noexcept {
  if (registration != nullptr && !communicator->aborted())
    communicator->library().deregister_buffer(communicator->handle(), registration);
  communicator->library().release(memory);
}

RegisteredMemory Communicator::make_buffer(std::size_t bytes) {
  RegisteredMemory memory(library_->allocate(bytes), {this});
  memory.get_deleter().registration = library_->register_buffer(handle_, memory.get(), bytes);
  return memory;
}

Communicator::Communicator(std::shared_ptr<Library> library, gpu::Gpu& gpu, Worker& worker,
                           std::vector<int> ranks, int own, const UniqueId& id,
                           std::chrono::nanoseconds timeout)
    : Communicator(std::move(library), gpu, worker, std::move(ranks), timeout) {
  post("ncclCommInitRankConfig", [size = size(), own, id](Library& nccl, Begun& begun) {
    begun.state = nccl.init(begun.handle, size, id, own);
  });
}

Communicator::Communicator(Communicator& parent, std::vector<int> ranks,
                           std::chrono::nanoseconds timeout)
    : Communicator(parent.library_, parent.gpu_, parent.worker_, std::move(ranks), timeout) {
  parent_ = &parent;
}

Communicator::Communicator(std::shared_ptr<Library> library, gpu::Gpu& gpu, Worker& worker,
                           std::vector<int> ranks, std::chrono::nanoseconds timeout)
    : library_(std::move(library)),
      gpu_(gpu),
      worker_(worker),
      ranks_(std::move(ranks)),
      timeout_(timeout),
      buffers_(gpu_.runtime(), [this](const std::shared_ptr<gpu::Runtime>& /*runtime*/,
                                      std::size_t bytes) { return make_buffer(bytes); }) {}

void Communicator::post(const char* call, Begin begin) {
  worker_.post([making = making_, library = library_, runtime = gpu_.runtime(),
                device = gpu_.index(), call, timeout = timeout_, begin = std::move(begin)] {
    const auto guarded = [&](Library& nccl, Begun& begun) {
      const gpu::DeviceGuard guard(*runtime, device);
      begin(nccl, begun);
    };
    make(*making, *library, call, timeout, guarded);
  });
}

void Communicator::shrink_parent() {
  if (!parent_->ready() || parent_->in_use_ > 0) return;
  std::vector<int> excluded;  // places among the parent's ranks
  for (int place = 0; place < parent_->size(); ++place)
    if (!std::ranges::binary_search(ranks_, parent_->ranks_[static_cast<std::size_t>(place)]))
      excluded.push_back(place);
  const CommHandle parent = std::exchange(parent_, nullptr)->handle_;
  post("ncclCommShrink", [parent, excluded](Library& nccl, Begun& begun) {
    begun.parent = parent;
    begun.state = nccl.shrink(begun.handle, parent, excluded);
  });
}

Communicator::~Communicator() {
  if (handle_ == nullptr) {
    abort();
    return;
  }
  // Memory is deregistered before the communicator is destroyed.
  buffers_.clear();
  if (aborted_) return;
  worker_.post(
      [library = library_, runtime = gpu_.runtime(), device = gpu_.index(), handle = handle_] {
        const gpu::DeviceGuard guard(*runtime, device);
        library->destroy(handle);
      });
}

void Communicator::make(Making& making, Library& library, const char* call,
                        std::chrono::nanoseconds timeout, const Begin& begin) {
  const auto deadline = steady_clock::now() + timeout;
  Begun begun;
  std::string error;
  try {
    begin(library, begun);
    while (begun.state == State::in_progress && error.empty()) {
      if (making.canceled) {
        error = "the making of NCCL's communicator was ended";
      } else if (steady_clock::now() >= deadline) {
        error = fmt::format("{} is not done after {} s", call,
                            std::chrono::duration<double>(timeout).count());
      } else {
        std::this_thread::sleep_for(pause);
        begun.state = library.state(begun.handle);
        if (begun.state == State::ready && begun.parent != nullptr)
          begun.state = library.state(begun.parent);
      }
    }
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  const std::lock_guard lock(making.mutex);
  // After a cancellation nobody is left to use the handle.
  if (error.empty() && making.canceled) error = "the making of NCCL's communicator was ended";
  if (!error.empty() && begun.handle != nullptr)
    library.abort(std::exchange(begun.handle, nullptr));
  making.handle = begun.handle;
  making.error = error;
  making.done = true;
}

bool Communicator::ready() {
  if (aborted_) throw BackendError("NCCL's communicator was aborted");
  if (handle_ != nullptr) return library_->state(handle_) == State::ready;
  if (parent_ != nullptr) shrink_parent();
  const std::lock_guard lock(making_->mutex);
  if (!making_->done) return false;
  if (!making_->error.empty())
    throw BackendError(fmt::format("NCCL's communicator of the ranks {} cannot be made: {}",
                                   to_string(RankSet::of(ranks_)), making_->error));
  handle_ = making_->handle;
  return true;
}

void Communicator::abort() noexcept {
  if (std::exchange(aborted_, true)) return;
  if (handle_ == nullptr) {
    const std::lock_guard lock(making_->mutex);
    making_->canceled = true;
    handle_ = making_->handle;
    if (handle_ == nullptr) return;
  }
  try {
    worker_.post([library = library_, handle = handle_] { library->abort(handle); });
  } catch (...) {
    library_->abort(handle_);
  }
}

}  // namespace kolo::internal::backend::nccl
