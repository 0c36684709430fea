// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>

#include "backend/gpu/runtime/runtime.hpp"
#include "backend/gpu/runtime/transfer_kernel.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::backend::gpu {
namespace {

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  // Clears an error that is not sticky, so that the program's next query does not report it again.
  static_cast<void>(cudaGetLastError());
  throw BackendError(
      fmt::format("{} failed: {} ({})", call, cudaGetErrorString(error), cudaGetErrorName(error)));
}

/// A function of the driver, found without linking the driver.
template <typename Function>
Function driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &result),
        "cudaGetDriverEntryPointByVersion");
  if (result != cudaDriverEntryPointSuccess || function == nullptr)
    throw BackendError(fmt::format("the CUDA driver has no {}", name));
  return reinterpret_cast<Function>(function);
}

class RealRuntime : public Runtime {
 public:
  Versions versions() override {
    Versions versions;
    check(cudaDriverGetVersion(&versions.driver), "cudaDriverGetVersion");
    check(cudaRuntimeGetVersion(&versions.runtime), "cudaRuntimeGetVersion");
    return versions;
  }

  int device_count() override {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorNoDevice) {
      static_cast<void>(cudaGetLastError());
      return 0;
    }
    check(error, "cudaGetDeviceCount");
    return count;
  }

  DeviceProperties properties(int device) override {
    cudaDeviceProp found{};
    check(cudaGetDeviceProperties(&found, device), "cudaGetDeviceProperties");
    std::array<char, 32> bus{};
    check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device),
          "cudaDeviceGetPCIBusId");
    DeviceProperties properties{found.name, bus.data()};
    std::copy_n(found.uuid.bytes, properties.uuid.size(), properties.uuid.begin());
    return properties;
  }

  void check_kernels() override { check(find_transfer_kernel(), "cudaFuncGetAttributes"); }

  int current_device() override {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    return device;
  }

  void use_device(int device) override { check(cudaSetDevice(device), "cudaSetDevice"); }

  bool is_in_use(int device) override {
    using GetState = int (*)(int device, unsigned* flags, int* active);
    static const auto get_state = driver_function<GetState>("cuDevicePrimaryCtxGetState");
    unsigned flags = 0;
    int active = 0;
    return get_state(device, &flags, &active) == 0 && active != 0;
  }

  StreamHandle create_stream() override {
    int lowest = 0;
    int highest = 0;
    check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
    StreamHandle stream = nullptr;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest),
          "cudaStreamCreateWithPriority");
    return stream;
  }

  void destroy_stream(StreamHandle stream) noexcept override {
    static_cast<void>(cudaStreamDestroy(stream));
  }

  void synchronize(StreamHandle stream) override {
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }

  std::uint64_t stream_id(StreamHandle stream) override {
    unsigned long long id = 0;
    check(cudaStreamGetId(stream, &id), "cudaStreamGetId");
    return id;
  }

  bool is_capturing(StreamHandle stream) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(stream, &status);
    if (error == cudaErrorStreamCaptureImplicit) {
      static_cast<void>(cudaGetLastError());
      return true;
    }
    check(error, "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
  }

  CaptureMode exchange_capture_mode(CaptureMode mode) noexcept override {
    auto exchanged = static_cast<cudaStreamCaptureMode>(mode);
    static_cast<void>(cudaThreadExchangeStreamCaptureMode(&exchanged));
    return static_cast<CaptureMode>(exchanged);
  }

  EventHandle create_event() override {
    EventHandle event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
          "cudaEventCreateWithFlags");
    return event;
  }

  void destroy_event(EventHandle event) noexcept override {
    static_cast<void>(cudaEventDestroy(event));
  }

  void record(EventHandle event, StreamHandle stream) override {
    check(cudaEventRecord(event, stream), "cudaEventRecord");
  }

  void wait(StreamHandle stream, EventHandle event) override {
    check(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
  }

  bool is_done(EventHandle event) override {
    // Calls the driver's function. While the event is pending, cudaEventQuery sets the last error
    // to cudaErrorNotReady, which would hide an error that the program has not yet queried with
    // cudaGetLastError.
    using Query = int (*)(EventHandle event);
    static const auto query = driver_function<Query>("cuEventQuery");
    constexpr int not_ready = 600;  // CUDA_ERROR_NOT_READY
    const int result = query(event);
    if (result == not_ready) return false;
    if (result != 0) check(cudaEventQuery(event), "cudaEventQuery");
    return true;
  }

  void synchronize(EventHandle event) override {
    check(cudaEventSynchronize(event), "cudaEventSynchronize");
  }

  std::byte* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "cudaMalloc");
    return static_cast<std::byte*>(memory);
  }

  void release(std::byte* memory) noexcept override { static_cast<void>(cudaFree(memory)); }

  std::byte* allocate_pinned(std::size_t bytes) override {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc");
    return static_cast<std::byte*>(memory);
  }

  void release_pinned(std::byte* memory) noexcept override {
    static_cast<void>(cudaFreeHost(memory));
  }

  void copy(void* to, const void* from, std::size_t bytes, CopyKind kind,
            StreamHandle stream) override {
    check(cudaMemcpyAsync(
              to, from, bytes,
              kind == CopyKind::to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync");
  }

  void launch(std::span<const Segment> segments, StreamHandle stream) override {
    while (!segments.empty()) {
      const TransferTable table = make_table(segments);
      check(launch_transfer(table, stream), "the launch of the transfer kernel");
      segments = segments.subspan(static_cast<std::size_t>(table.count));
    }
  }
};

}  // namespace

std::string built_version() {
  return fmt::format("{}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

std::shared_ptr<Runtime> find_runtime() { return std::make_shared<RealRuntime>(); }

}  // namespace kolo::internal::backend::gpu
