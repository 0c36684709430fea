// SPDX-License-Identifier: Apache-2.0
// The interface to CUDA. Tests replace it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "backend/gpu/runtime/transfer.hpp"

struct CUstream_st;
struct CUevent_st;

namespace kolo::internal::backend::gpu {

using StreamHandle = CUstream_st*;  // cudaStream_t
using EventHandle = CUevent_st*;    // cudaEvent_t

/// The values of cudaStreamCaptureMode: which calls the thread may make while a stream is captured
/// into a graph, on this thread or another.
enum class CaptureMode : std::uint8_t { global = 0, thread_local_only = 1, relaxed = 2 };

enum class CopyKind : std::uint8_t { to_host, to_device };

/// The versions of the CUDA driver and runtime, encoded as in CUDA: 13000 is 13.0. `driver` is 0 if
/// there is no driver.
struct Versions {
  int driver = 0;
  int runtime = 0;
};

struct DeviceProperties {
  std::string name{};
  std::string pci_bus_id{};
  std::array<char, 16> uuid{};
};

/// Every function throws BackendError with the name of the failed call and the reason, unless it
/// says otherwise. None clears or hides a CUDA error that the program has not yet queried. Streams,
/// events, memory and launches belong to the thread's current device. Thread-safe.
class Runtime {
 public:
  virtual ~Runtime() = default;

  [[nodiscard]] virtual Versions versions() = 0;
  /// 0 if CUDA_VISIBLE_DEVICES hides all devices.
  [[nodiscard]] virtual int device_count() = 0;
  [[nodiscard]] virtual DeviceProperties properties(int device) = 0;
  /// Throws unless this build has machine code for the current device.
  virtual void check_kernels() = 0;

  [[nodiscard]] virtual int current_device() = 0;
  virtual void use_device(int device) = 0;
  /// False while no code in this process has used the device. Does not use it.
  [[nodiscard]] virtual bool is_in_use(int device) = 0;

  /// A stream of the highest priority, which does not synchronize with the default stream.
  [[nodiscard]] virtual StreamHandle create_stream() = 0;
  virtual void destroy_stream(StreamHandle stream) noexcept = 0;
  /// Waits until all work on the stream is done.
  virtual void synchronize(StreamHandle stream) = 0;

  /// Unlike a handle, an id is never reused, and it differs between threads that use
  /// cudaStreamPerThread.
  [[nodiscard]] virtual std::uint64_t stream_id(StreamHandle stream) = 0;
  /// True also for the default stream while a stream that waits for it is being captured.
  [[nodiscard]] virtual bool is_capturing(StreamHandle stream) = 0;
  /// Sets the mode of the calling thread and returns the previous one.
  virtual CaptureMode exchange_capture_mode(CaptureMode mode) noexcept = 0;

  [[nodiscard]] virtual EventHandle create_event() = 0;
  virtual void destroy_event(EventHandle event) noexcept = 0;
  /// Records the event after all work on the stream so far. Null is the default stream.
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  /// Later work on the stream waits for the last record of the event.
  virtual void wait(StreamHandle stream, EventHandle event) = 0;
  [[nodiscard]] virtual bool is_done(EventHandle event) = 0;
  /// Blocks the calling thread, without polling, until the GPU has passed the last record.
  virtual void synchronize(EventHandle event) = 0;

  /// Memory of the device, aligned to 256 bytes.
  [[nodiscard]] virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* memory) noexcept = 0;
  /// Host memory that the device can access directly.
  [[nodiscard]] virtual std::byte* allocate_pinned(std::size_t bytes) = 0;
  virtual void release_pinned(std::byte* memory) noexcept = 0;

  /// Pinned memory must stay valid until the stream has finished the copy.
  virtual void copy(void* to, const void* from, std::size_t bytes, CopyKind kind,
                    StreamHandle stream) = 0;
  /// Launches the transfer kernel, more than once if there are more segments than fit into a table.
  /// No segment is empty. They are copied, and need not outlive the call.
  virtual void launch(std::span<const Segment> segments, StreamHandle stream) = 0;
};

/// The version of CUDA for which Kolo was built, such as "13.0"; "" in a build without CUDA. Does
/// not call CUDA.
[[nodiscard]] std::string built_version();

/// The runtime of CUDA; null in a build without CUDA. Does not call CUDA.
[[nodiscard]] std::shared_ptr<Runtime> find_runtime();

}  // namespace kolo::internal::backend::gpu
