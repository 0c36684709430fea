// SPDX-License-Identifier: Apache-2.0
// The devices whose memory a session's tensors may use.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "backend/backend.hpp"
#include "backend/gpu/nccl/library.hpp"
#include "backend/gpu/runtime/gpu.hpp"
#include "backend/gpu/runtime/runtime.hpp"
#include "backend/router/router.hpp"
#include "base/settings.hpp"
#include "kolo/cuda.hpp"
#include "kolo/error.hpp"
#include "kolo/types.hpp"

namespace kolo::internal::session {

/// The libraries for GPU tensors; tests replace CUDA and NCCL here.
struct GpuLibraries {
  std::shared_ptr<backend::gpu::Runtime> cuda = backend::gpu::find_runtime();  // may be null
  backend::Router::FindLibrary find_nccl = backend::nccl::find_library;
};

/// The devices of one rank. Calls nothing of CUDA before the first GPU tensor.
class Devices {
 public:
  /// `cpu` and `settings` outlive this.
  Devices(backend::Backend& cpu, int rank, const Settings& settings, GpuLibraries libraries)
      : cpu_(cpu) {
    if (libraries.cuda == nullptr) return;
    gpu_.emplace(std::move(libraries.cuda));
    on_devices_.emplace(cpu_, *gpu_, rank, std::move(libraries.find_nccl), settings,
                        backend::Router::Options{});
  }

  /// A mark in this thread's current stream, after the work so far, for a tensor on the GPU. Throws
  /// InvalidArgument if the GPU cannot be used; BackendError. Thread-safe.
  [[nodiscard]] std::shared_ptr<const backend::gpu::ReadyMark> mark(Device device) {
    if (!gpu_) throw InvalidArgument("this build of Kolo is without CUDA");
    return gpu_->mark(device, CudaStreamScope::current());
  }

  /// Executes batches wherever their tensors are.
  [[nodiscard]] backend::Backend& backend() { return gpu_ ? *on_devices_ : cpu_; }
  /// True while a GPU works, whose progress rings no bell.
  [[nodiscard]] bool must_poll() const { return on_devices_ && on_devices_->must_poll(); }

 private:
  backend::Backend& cpu_;
  std::optional<backend::gpu::Gpu> gpu_{};  // none in a build without CUDA
  std::optional<backend::Router> on_devices_{};
};

}  // namespace kolo::internal::session
