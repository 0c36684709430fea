// SPDX-License-Identifier: Apache-2.0
// The devices whose memory a session's tensors may use.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "backend/backend.hpp"
#include "backend/gpu/nccl/library.hpp"
#include "backend/gpu/nccl/worker.hpp"
#include "backend/gpu/runtime/completion.hpp"
#include "backend/gpu/runtime/gpu.hpp"
#include "backend/gpu/runtime/runtime.hpp"
#include "backend/router/router.hpp"
#include "base/log.hpp"
#include "base/settings.hpp"
#include "kolo/cuda.hpp"
#include "kolo/error.hpp"
#include "kolo/types.hpp"
#include "node/doorbell.hpp"
#include "session/engine/burst.hpp"

namespace kolo::internal::session {

/// The libraries for GPU tensors; tests replace CUDA and NCCL here.
struct GpuLibraries {
  std::shared_ptr<backend::gpu::Runtime> cuda = backend::gpu::find_runtime();  // may be null
  backend::Router::FindLibrary find_nccl = backend::nccl::find_library;
};

/// The devices of one rank. CUDA is not called before the first GPU tensor, so a job on CPUs
/// creates no CUDA context.
class Devices {
 public:
  /// `cpu`, `settings` and `bell` outlive the object.
  Devices(backend::Backend& cpu, int rank, const Settings& settings, const node::Doorbell& bell,
          GpuLibraries libraries)
      : cpu_(cpu) {
    ringer_->bell = &bell;
    if (libraries.cuda == nullptr) return;
    gpu_.emplace(std::move(libraries.cuda));
    on_devices_.emplace(cpu_, *gpu_, rank, std::move(libraries.find_nccl), settings,
                        backend::Router::Options{});
  }

  /// Records an event in this thread's current stream. Kolo touches a GPU tensor only after the
  /// event, and so after the work that is on the stream already. The tensors of a burst share one
  /// event. Throws InvalidArgument if the GPU cannot be used, and BackendError. Thread-safe.
  [[nodiscard]] std::shared_ptr<const backend::gpu::ReadyMark> mark(Device device) {
    if (!gpu_) throw InvalidArgument("this build of Kolo is without CUDA");
    Burst* const burst = Burst::of_this_thread();
    const detail::StreamInUse stream = burst != nullptr && burst->stream()
                                           ? *burst->stream()
                                           : detail::stream_in_use(device.index);
    if (burst == nullptr) return gpu_->mark(device, stream.handle, stream.lasts);
    std::shared_ptr<const backend::gpu::ReadyMark>& shared = burst->ready(*gpu_, stream);
    if (shared == nullptr || gpu_->index() != device.index)
      shared = gpu_->mark(device, stream.handle, stream.lasts);
    return shared;
  }

  /// Rings the bell once the GPU is done: a driver that sleeps then notices it. Thread-safe.
  void watch(std::shared_ptr<backend::gpu::Completion> completion) {
    watcher_.post([completion = std::move(completion), ringer = ringer_] {
      try {
        completion->block();
      } catch (const BackendError&) {  // the driver meets the same error
      }
      const std::lock_guard lock(ringer->mutex);
      if (ringer->bell != nullptr) ringer->bell->ring();
    });
  }

  /// Executes batches on the device that holds their tensors.
  [[nodiscard]] backend::Backend& backend() { return gpu_ ? *on_devices_ : cpu_; }
  /// True while a GPU works: its progress rings no bell, so the driver has to poll.
  [[nodiscard]] bool must_poll() const { return on_devices_ && on_devices_->must_poll(); }

  ~Devices() {
    {
      const std::lock_guard lock(ringer_->mutex);
      ringer_->bell = nullptr;
    }
    if (!watcher_.stop(std::chrono::seconds(1)))
      log(LogLevel::warning, "the GPU does not end its work; a thread that waits for it is leaked");
  }
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

 private:
  backend::Backend& cpu_;
  std::optional<backend::gpu::Gpu> gpu_{};  // none in a build without CUDA
  std::optional<backend::Router> on_devices_{};

  /// Outlives this object if a GPU is never done.
  struct Ringer {
    std::mutex mutex{};
    const node::Doorbell* bell = nullptr;
  };
  std::shared_ptr<Ringer> ringer_ = std::make_shared<Ringer>();
  backend::nccl::Worker watcher_{};  // waits for the GPU
};

}  // namespace kolo::internal::session
