// Tensors on GPUs: what a program tells about its streams, and memory for programs that have nobody
// else to ask for it. Needs no header of CUDA's.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "kolo/export.hpp"

struct CUstream_st;

namespace kolo {

/// A tensor on a GPU that is given to Kolo may still be in the making there: Kolo waits, on the
/// GPU, for what the calling thread's current stream was given before the call. That is the legacy
/// default stream unless such an object says otherwise: while it lives, it is `stream` (a
/// `cudaStream_t`, which must outlive the call). Scopes on a thread nest.
///
/// Results are there when the operation is done: no stream needs to wait for them. While Kolo asks
/// an allocator for a GPU tensor's memory, on whatever thread, the current stream is the one of
/// Kolo's that the memory will be written on: what was given to another stream must be done with
/// it.
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

/// A GPU that a program without a framework of its own allocates on. Cheap to copy. Thread-safe.
class CudaDevice {
 public:
  /// How many this process sees: 0 without a driver, and in a build without CUDA.
  [[nodiscard]] KOLO_EXPORT static int count() noexcept;

  /// Throws InvalidArgument if there is no such GPU, or it cannot be used by this build.
  KOLO_EXPORT explicit CudaDevice(int index);

  [[nodiscard]] KOLO_EXPORT int index() const;
  /// Memory on it, at least one byte, not set to anything. Throws BackendError.
  [[nodiscard]] KOLO_EXPORT std::shared_ptr<std::byte> allocate(std::size_t bytes) const;

  // These return when it is done. They do not wait for any stream of the program's.
  KOLO_EXPORT void copy_to_device(void* to, const void* from, std::size_t bytes) const;
  KOLO_EXPORT void copy_to_host(void* to, const void* from, std::size_t bytes) const;

  struct State;
  /// For tests.
  explicit CudaDevice(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

}  // namespace kolo
