// SPDX-License-Identifier: Apache-2.0
// The part of CUDA that src/backend/gpu/runtime/transfer.cu and runtime_real.cpp use, for a
// compiler without CUDA: kernels run on the host, block after block and thread after thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/half.hpp"

#define __host__
#define __device__
#define __global__
#define __launch_bounds__(...)
#define __grid_constant__

struct CUstream_st;
struct CUevent_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;

enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorNoDevice = 100,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureImplicit = 906,
};

/// The results that the calls below report.
struct CudaOnHost {
  cudaError_t last_error = cudaSuccess;  // result of cudaGetLastError, until it is read
  cudaError_t event = cudaSuccess;       // result of event calls
  cudaError_t device_count = cudaSuccess;
  int blocks = 0;  // blocks of the last launch
};
inline CudaOnHost cuda_on_host{};

inline cudaError_t cudaGetLastError() {
  const cudaError_t error = cuda_on_host.last_error;
  cuda_on_host.last_error = cudaSuccess;
  return error;
}
/// As the runtime does with what a call returns.
inline cudaError_t remembered(cudaError_t error) {
  if (error != cudaSuccess) cuda_on_host.last_error = error;
  return error;
}

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct dim3 {
  explicit dim3(unsigned size = 0) : x(size) {}
  unsigned x;
};
inline dim3 threadIdx;
inline dim3 blockIdx;
inline dim3 gridDim;

template <typename Argument>
cudaError_t cudaLaunchKernel(void (*kernel)(Argument), dim3 blocks, dim3 threads, void** arguments,
                             std::size_t /*shared*/, cudaStream_t /*stream*/) {
  gridDim = blocks;
  cuda_on_host.blocks = static_cast<int>(blocks.x);
  for (blockIdx.x = 0; blockIdx.x < blocks.x; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < threads.x; ++threadIdx.x)
      kernel(*static_cast<const Argument*>(arguments[0]));
  return cudaSuccess;
}

enum cudaDeviceAttr : int { cudaDevAttrMultiProcessorCount };
struct cudaFuncAttributes {};

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr /*which*/, int /*device*/) {
  *value = 5;
  return cudaSuccess;
}
template <typename Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* /*attributes*/, Kernel* /*kernel*/) {
  return cudaSuccess;
}

using half_bits = kolo::internal::F16;
inline half_bits __ushort_as_half(std::uint16_t bits) { return {bits}; }
inline float __half2float(half_bits half) { return to_float(half); }

struct __half2 {
  kolo::internal::F16 x, y;
};
inline __half2 __floats2half2_rn(float x, float y) {
  using kolo::internal::F16;
  return {kolo::internal::to_half<F16>(x), kolo::internal::to_half<F16>(y)};
}
struct __nv_bfloat162 {
  kolo::internal::BF16 x, y;
};
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  using kolo::internal::BF16;
  return {kolo::internal::to_half<BF16>(x), kolo::internal::to_half<BF16>(y)};
}
