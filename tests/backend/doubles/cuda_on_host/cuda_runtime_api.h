// SPDX-License-Identifier: Apache-2.0
// The calls of src/backend/gpu/runtime/runtime_real.cpp. They do nothing, and return the results
// set in `cuda_on_host`.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "cuda_runtime.h"

#define CUDART_VERSION 13000

struct cudaDeviceProp {
  char name[256] = "a host";
  struct {
    char bytes[16] = {};
  } uuid;
};
enum cudaDriverEntryPointQueryResult : int { cudaDriverEntryPointSuccess };
enum cudaStreamCaptureStatus : int { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum cudaStreamCaptureMode : int { cudaStreamCaptureModeGlobal };
enum cudaMemcpyKind : int { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
inline constexpr unsigned cudaEnableDefault = 0;
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventBlockingSync = 1;
inline constexpr unsigned cudaEventDisableTiming = 2;
inline constexpr unsigned cudaHostAllocPortable = 1;

/// The results of the calls for streams and memory.
struct CudaCallsOnHost {
  cudaError_t memory = cudaSuccess;
  cudaError_t is_capturing = cudaSuccess;
  cudaStreamCaptureStatus capture_status = cudaStreamCaptureStatusNone;
};
inline CudaCallsOnHost cuda_calls_on_host{};

inline const char* cudaGetErrorString(cudaError_t /*error*/) { return "an error"; }
inline const char* cudaGetErrorName(cudaError_t /*error*/) { return "cudaErrorOfTheTest"; }
inline cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
inline cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = cuda_on_host.device_count == cudaSuccess ? 1 : 0;
  return remembered(cuda_on_host.device_count);
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
  *properties = {};
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetPCIBusId(char* bus, int /*length*/, int /*device*/) {
  *bus = '\0';
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int /*device*/) { return cudaSuccess; }

inline int primary_context_on_host(int /*device*/, unsigned* /*flags*/, int* active) {
  *active = 1;
  return 0;
}
/// The driver's functions leave no error for cudaGetLastError.
inline int query_event_on_host(cudaEvent_t /*event*/) { return cuda_on_host.event; }
inline cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function,
                                                    unsigned /*version*/, unsigned /*flags*/,
                                                    cudaDriverEntryPointQueryResult* result) {
  *function = std::string_view(name) == "cuEventQuery"
                  ? reinterpret_cast<void*>(&query_event_on_host)
                  : reinterpret_cast<void*>(&primary_context_on_host);
  *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

inline cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = *highest = 0;
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/,
                                                int /*priority*/) {
  *stream = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t /*stream*/) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t /*stream*/) { return cudaSuccess; }
inline cudaError_t cudaStreamGetId(cudaStream_t /*stream*/, unsigned long long* id) {
  *id = 7;
  return cudaSuccess;
}
inline cudaError_t cudaStreamIsCapturing(cudaStream_t /*stream*/, cudaStreamCaptureStatus* status) {
  *status = cuda_calls_on_host.capture_status;
  return remembered(cuda_calls_on_host.is_capturing);
}
inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* /*mode*/) {
  return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t /*stream*/, cudaEvent_t /*event*/,
                                       unsigned /*flags*/) {
  return cudaSuccess;
}

inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t /*event*/) { return cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t /*event*/) { return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t /*event*/, cudaStream_t /*stream*/) {
  return cudaSuccess;
}
inline cudaError_t cudaEventQuery(cudaEvent_t /*event*/) { return remembered(cuda_on_host.event); }

inline cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = cuda_calls_on_host.memory == cudaSuccess ? std::malloc(bytes) : nullptr;
  return remembered(cuda_calls_on_host.memory);
}
inline cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned /*flags*/) {
  return cudaMalloc(memory, bytes);
}
inline cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
inline cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes,
                                   cudaMemcpyKind /*kind*/, cudaStream_t /*stream*/) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
