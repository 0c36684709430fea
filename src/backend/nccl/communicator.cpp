#include "backend/nccl/communicator.hpp"

#include <fmt/format.h>

#include <exception>
#include <thread>
#include <utility>

#include "base/format.hpp"
#include "base/rank_set.hpp"
#include "kolo/error.hpp"

namespace kolo::backend::nccl {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds pause{1};  // between two looks at what is under way

}  // namespace

EnrolledMemory::EnrolledMemory(Communicator& communicator, std::size_t bytes)
    : communicator_(&communicator), memory_(communicator.library().allocate(bytes)) {
  try {
    enrolled_ = communicator.library().enroll(communicator.handle(), memory_, bytes);
  } catch (...) {
    communicator.library().release(memory_);
    throw;
  }
}

EnrolledMemory::EnrolledMemory(EnrolledMemory&& other) noexcept
    : communicator_(other.communicator_),
      memory_(std::exchange(other.memory_, nullptr)),
      enrolled_(other.enrolled_) {}

EnrolledMemory& EnrolledMemory::operator=(EnrolledMemory&& other) noexcept {
  if (this == &other) return *this;
  reset();
  communicator_ = other.communicator_;
  memory_ = std::exchange(other.memory_, nullptr);
  enrolled_ = other.enrolled_;
  return *this;
}

void EnrolledMemory::reset() noexcept {
  if (memory_ == nullptr) return;
  if (!communicator_->aborted_)
    communicator_->library().withdraw(communicator_->handle(), enrolled_);
  communicator_->library().release(std::exchange(memory_, nullptr));
}

Communicator::Communicator(std::shared_ptr<Library> library, cuda::Gpu& gpu, Worker& worker,
                           std::vector<int> ranks, int own, const UniqueId& id,
                           std::chrono::nanoseconds timeout)
    : library_(std::move(library)),
      runtime_(gpu.runtime()),
      device_(gpu.index()),
      worker_(worker),
      ranks_(std::move(ranks)),
      buffers_(runtime_, [this](const std::shared_ptr<cuda::Runtime>& /*runtime*/,
                                std::size_t bytes) { return EnrolledMemory(*this, bytes); }) {
  worker_.post([making = making_, library = library_, runtime = runtime_, device = device_,
                size = size(), own, id,
                timeout] { make(*making, *library, *runtime, device, size, own, id, timeout); });
}

Communicator::~Communicator() {
  if (handle_ == nullptr) {
    abort();
    return;
  }
  // Its memory is withdrawn before it ends.
  buffers_.clear();
  if (aborted_) return;
  worker_.post([library = library_, runtime = runtime_, device = device_, handle = handle_] {
    const cuda::DeviceGuard guard(*runtime, device);
    library->destroy(handle);
  });
}

void Communicator::make(Making& making, Library& library, cuda::Runtime& runtime, int device,
                        int size, int own, const UniqueId& id, std::chrono::nanoseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  CommHandle handle = nullptr;
  std::string error;
  try {
    const cuda::DeviceGuard guard(runtime, device);
    State state = library.init(handle, size, id, own);
    while (state == State::in_progress && error.empty()) {
      if (making.cancelled) {
        error = "the making of NCCL's communicator was ended";
      } else if (steady_clock::now() >= deadline) {
        error = fmt::format("ncclCommInitRankConfig is not done after {} s",
                            std::chrono::duration<double>(timeout).count());
      } else {
        std::this_thread::sleep_for(pause);
        state = library.state(handle);
      }
    }
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  const std::lock_guard lock(making.mutex);
  // Nobody is left to use it.
  if (error.empty() && making.cancelled) error = "the making of NCCL's communicator was ended";
  if (!error.empty() && handle != nullptr) library.abort(std::exchange(handle, nullptr));
  making.handle = handle;
  making.error = error;
  making.done = true;
}

bool Communicator::ready() {
  if (aborted_) throw BackendError("NCCL's communicator was aborted");
  if (handle_ != nullptr) return library_->state(handle_) == State::ready;
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
    making_->cancelled = true;
    handle_ = making_->handle;
    if (handle_ == nullptr) return;
  }
  try {
    worker_.post([library = library_, handle = handle_] { library->abort(handle); });
  } catch (...) {
    library_->abort(handle_);
  }
}

}  // namespace kolo::backend::nccl
