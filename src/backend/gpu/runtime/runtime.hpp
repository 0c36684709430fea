// SPDX-License-Identifier: Apache-2.0
// The interface to CUDA, so that tests can replace it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backend/gpu/runtime/transfer.hpp"

struct CUstream_st;
struct CUevent_st;

namespace kolo::internal::backend::gpu {

using StreamHandle = CUstream_st*;  // cudaStream_t
using EventHandle = CUevent_st*;    // cudaEvent_t

/// As cudaStreamCaptureMode: the calls that the thread may make while a stream is captured into a
/// graph, on this thread or another.
enum class CaptureMode : std::uint8_t { global = 0, thread_local_only = 1, relaxed = 2 };

enum class CopyKind : std::uint8_t { to_host, to_device };

/// As CUDA spells them: 13000 is 13.0. The driver's is 0 where there is none.
struct Versions {
  int driver = 0;
  int runtime = 0;
};

struct DeviceProperties {
  std::string name{};
  std::string pci_bus_id{};
  std::array<char, 16> uuid{};
};

/// Every function throws BackendError, with the name of the call that failed and the reason, unless
/// it says otherwise. None takes or hides an error that the program has not asked CUDA for.
/// Streams, events, memory and launches belong to the thread's current device. Thread-safe.
class Runtime {
 public:
  virtual ~Runtime() = default;

  [[nodiscard]] virtual Versions versions() = 0;
  /// 0 if CUDA_VISIBLE_DEVICES hides all.
  [[nodiscard]] virtual int device_count() = 0;
  [[nodiscard]] virtual DeviceProperties properties(int device) = 0;
  /// Throws unless this build has machine code for the current device.
  virtual void check_kernels() = 0;

  [[nodiscard]] virtual int current_device() = 0;
  virtual void use_device(int device) = 0;
  /// False while nobody in this process has used the device. Does not use it.
  [[nodiscard]] virtual bool is_in_use(int device) = 0;

  /// Of the highest priority, and independent of the default stream.
  [[nodiscard]] virtual StreamHandle create_stream() = 0;
  virtual void destroy_stream(StreamHandle stream) noexcept = 0;
  /// Waits until all work on the stream is done.
  virtual void synchronize(StreamHandle stream) = 0;

  /// Unlike the handle it is never used again, and differs between the streams that threads have
  /// behind cudaStreamPerThread.
  [[nodiscard]] virtual std::uint64_t stream_id(StreamHandle stream) = 0;
  /// True also for the default stream while a stream that waits for it is captured.
  [[nodiscard]] virtual bool is_capturing(StreamHandle stream) = 0;
  /// Of the calling thread. Returns the mode before.
  virtual CaptureMode exchange_capture_mode(CaptureMode mode) noexcept = 0;

  [[nodiscard]] virtual EventHandle create_event() = 0;
  virtual void destroy_event(EventHandle event) noexcept = 0;
  /// After all work on the stream so far. Null is the default stream.
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  /// Later work on the stream waits for the last record of the event.
  virtual void wait(StreamHandle stream, EventHandle event) = 0;
  [[nodiscard]] virtual bool is_done(EventHandle event) = 0;

  /// On the device; aligned to 256 bytes.
  [[nodiscard]] virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void release(std::byte* memory) noexcept = 0;
  /// Of the host, where the device reads and writes it too.
  [[nodiscard]] virtual std::byte* allocate_pinned(std::size_t bytes) = 0;
  virtual void release_pinned(std::byte* memory) noexcept = 0;

  /// Pinned memory must stay valid until the stream has done the copy.
  virtual void copy(void* to, const void* from, std::size_t bytes, CopyKind kind,
                    StreamHandle stream) = 0;
  /// One launch. The segments lie in memory of the device, valid until the stream has done the
  /// launch.
  virtual void launch(const TransferTable& table, StreamHandle stream) = 0;
};

/// Of the CUDA that this is built with, "13.0"; "" without. Calls nothing of CUDA.
[[nodiscard]] std::string built_version();

/// CUDA's; null in a build without it. Calls nothing of CUDA.
[[nodiscard]] std::shared_ptr<Runtime> find_runtime();

}  // namespace kolo::internal::backend::gpu
