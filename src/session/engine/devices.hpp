// SPDX-License-Identifier: Apache-2.0
// Which memory a session's tensors may lie in.
#pragma once

#include <memory>
#include <optional>

#include "backend/backend.hpp"
#include "backend/gpu/nccl/library.hpp"
#include "backend/gpu/runtime/gpu.hpp"
#include "backend/gpu/runtime/runtime.hpp"
#include "backend/router/router.hpp"
#include "kolo/types.hpp"

namespace kolo::internal::session {

/// What GPU tensors need from outside; the seam to CUDA and NCCL.
struct GpuLibraries {
  std::shared_ptr<backend::gpu::Runtime> cuda = backend::gpu::find_runtime();  // may be null
  backend::Router::FindLibrary find_nccl = backend::nccl::find_library;
};

/// Of one rank. Nothing of CUDA is called before a GPU tensor is seen.
class Devices {
 public:
  /// `cpu` outlives this.
  Devices(backend::Backend& cpu, int rank, const backend::Router::Options& options,
          GpuLibraries libraries);

  /// For a tensor on a GPU, after what this thread's current stream was given so far. Throws
  /// InvalidArgument if the GPU cannot be used; BackendError. Thread-safe.
  [[nodiscard]] std::shared_ptr<const backend::gpu::ReadyMark> mark(Device device);

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
