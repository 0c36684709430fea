// SPDX-License-Identifier: Apache-2.0
// Tensors on GPUs: the streams that produce them, and memory for programs without a framework.
// Needs no CUDA header.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "kolo/export.hpp"

struct CUstream_st;

namespace kolo {

/// Sets the calling thread's current stream during its lifetime. `stream` is a `cudaStream_t` and
/// must outlive the calls made in the scope. Scopes nest; outside all of them the current stream is
/// the legacy default stream.
///
/// A collective may be called before the GPU has computed its tensors: on the GPU, Kolo waits for
/// all work queued on the current stream before the call. Results are complete when the operation
/// is done, so no stream needs to wait for them.
///
/// While Kolo calls an allocator for GPU memory, on any thread, the current stream is the stream on
/// which Kolo will write the memory. No other stream may still use that memory.
class [[nodiscard]] CudaStreamScope {
 public:
  KOLO_EXPORT explicit CudaStreamScope(CUstream_st* stream) noexcept;
  KOLO_EXPORT ~CudaStreamScope();
  CudaStreamScope(const CudaStreamScope&) = delete;
  CudaStreamScope& operator=(const CudaStreamScope&) = delete;

  /// This thread's current stream.
  [[nodiscard]] KOLO_EXPORT static CUstream_st* current() noexcept;

 private:
  CUstream_st* before_;
};

/// A GPU, for programs that allocate GPU memory without a framework. Cheap to copy; thread-safe.
class CudaDevice {
 public:
  /// The number of GPUs that this process sees: 0 without a driver or in a build without CUDA.
  [[nodiscard]] KOLO_EXPORT static int count() noexcept;

  /// Throws InvalidArgument if there is no such GPU, or this build cannot use it.
  KOLO_EXPORT explicit CudaDevice(int index);

  [[nodiscard]] KOLO_EXPORT int index() const;
  /// Allocates uninitialized memory on this GPU, at least one byte. The last copy of the pointer
  /// frees it. Throws BackendError.
  [[nodiscard]] KOLO_EXPORT std::shared_ptr<std::byte> allocate(std::size_t bytes) const;

  /// Copies between this GPU and the host, and returns when the copy is done. Does not wait for the
  /// program's streams. Throws BackendError.
  KOLO_EXPORT void copy_to_device(void* to, const void* from, std::size_t bytes) const;
  KOLO_EXPORT void copy_to_host(void* to, const void* from, std::size_t bytes) const;

  struct State;
  /// For tests.
  explicit CudaDevice(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

}  // namespace kolo
