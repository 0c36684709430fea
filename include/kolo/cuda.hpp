// SPDX-License-Identifier: Apache-2.0
// Tensors on GPUs: the streams that produce them, and memory for programs without a framework.
// Needs no CUDA header.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "kolo/export.hpp"

struct CUstream_st;

namespace kolo {

/// Sets the calling thread's current stream during its lifetime. `stream` is a `cudaStream_t` and
/// must outlive the calls made in the scope. Scopes nest; outside all of them the current stream is
/// LibTorch's current stream in a program with kolo::torch for CUDA, else the legacy default
/// stream.
///
/// A collective may be called before the GPU has computed its tensors: on the GPU, Kolo waits for
/// all work queued on the current stream before the call. A synchronous call, `Future::get` and
/// `Future::wait` return when the operation is queued on the GPU, and make the current stream wait
/// for it there: later work on that stream finds the results and may reuse the memory. Other
/// streams, and the host, must wait for that stream, or call `Future::synchronize` or
/// `synchronize`.
///
/// While Kolo calls an allocator for GPU memory, on any thread, the current stream is the stream on
/// which Kolo will write the memory. No other stream may still use that memory.
class [[nodiscard]] CudaStreamScope {
 public:
  KOLO_EXPORT explicit CudaStreamScope(CUstream_st* stream) noexcept;
  KOLO_EXPORT ~CudaStreamScope();
  CudaStreamScope(const CudaStreamScope&) = delete;
  CudaStreamScope& operator=(const CudaStreamScope&) = delete;

  /// The stream of this thread's innermost scope. Outside all scopes, the legacy default stream,
  /// even in a program with kolo::torch.
  [[nodiscard]] KOLO_EXPORT static CUstream_st* current() noexcept;

 private:
  std::optional<CUstream_st*> before_;
};

/// Prepares operations for their capture into a CUDA graph. While an object lives, the allreduces,
/// broadcasts and reducescatters of GPU tensors of all threads take the same path as captured ones.
/// An operation can be captured once NCCL has executed one with the same name and tensors on this
/// path. So run the step within a GraphWarmUp at least once, on all ranks, before you capture it.
/// All ranks capture the same operations.
///
/// A captured operation belongs to its graph: each replay executes it again, without Kolo's
/// knowledge and without the host. So all ranks replay the graph, in the same order relative to
/// their other GPU operations, and destroy it before the session ends. Joined ranks cannot take
/// part. Thread-safe.
class [[nodiscard]] GraphWarmUp {
 public:
  KOLO_EXPORT GraphWarmUp() noexcept;
  KOLO_EXPORT ~GraphWarmUp();
  GraphWarmUp(const GraphWarmUp&) = delete;
  GraphWarmUp& operator=(const GraphWarmUp&) = delete;

  /// True while an object lives.
  [[nodiscard]] KOLO_EXPORT static bool any() noexcept;
};

/// Blocks the host until the GPU has finished all operations of this rank that are queued on it. An
/// operation is certain to be queued only after a call has waited for it: `get`, `wait`, or a
/// synchronous call. Throws the first error that occurred on the GPU in this session. Returns at
/// once without a session or a GPU tensor. Thread-safe.
KOLO_EXPORT void synchronize();

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

  /// Copies between this GPU and the host after the work on the thread's current stream, and
  /// returns when the copy is done. Throws BackendError; InvalidArgument while that stream is being
  /// captured into a graph.
  KOLO_EXPORT void copy_to_device(void* to, const void* from, std::size_t bytes) const;
  KOLO_EXPORT void copy_to_host(void* to, const void* from, std::size_t bytes) const;

  struct State;
  /// For tests.
  explicit CudaDevice(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

namespace detail {

/// A thread's current stream. `lasts`: it is never destroyed.
struct StreamInUse {
  CUstream_st* handle;
  bool lasts;
};
[[nodiscard]] KOLO_EXPORT StreamInUse stream_in_use(int device);

/// Called once by kolo::torch: outside all scopes, `current(device)` is the current stream. It is
/// never destroyed.
KOLO_EXPORT void set_framework_stream(CUstream_st* (*current)(int device)) noexcept;

}  // namespace detail
}  // namespace kolo
