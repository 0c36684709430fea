// SPDX-License-Identifier: Apache-2.0
// The kernel: each block of threads takes tile after tile, finds the segment that it belongs to,
// and moves its elements in accesses of 16 bytes where both places allow it.
#include <cuda_runtime.h>

#include <cstring>

#include "backend/gpu/runtime/transfer_element.hpp"
#include "backend/gpu/runtime/transfer_kernel.hpp"

namespace kolo::internal::backend::gpu {
namespace {

constexpr int threads = 256;
constexpr int blocks_per_multiprocessor = 8;

/// Whole accesses of several elements. Memory at an unaligned address is accessed element by
/// element.
template <typename T, int count>
struct alignas(sizeof(T) * count < 16 ? sizeof(T) * count : 16) Several {
  T elements[count];
};

__host__ __device__ bool aligned(const void* a, const void* b, std::size_t bytes) {
  return ((reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b)) % bytes) == 0;
}

/// Bytes in accesses of `Word`, as many as there are whole ones.
template <typename Word>
__device__ void copy_words(const std::byte* from, std::byte* to, std::int64_t bytes) {
  const auto* const source = reinterpret_cast<const Word*>(from);
  auto* const target = reinterpret_cast<Word*>(to);
  const std::int64_t words = bytes / static_cast<std::int64_t>(sizeof(Word));
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < words; i += threads) target[i] = source[i];
  for (std::int64_t i = words * static_cast<std::int64_t>(sizeof(Word)) + threadIdx.x; i < bytes;
       i += threads)
    to[i] = from[i];
}

__device__ void copy_bytes(const std::byte* from, std::byte* to, std::int64_t bytes) {
  if (aligned(from, to, 16)) {
    copy_words<uint4>(from, to, bytes);
  } else if (aligned(from, to, 8)) {
    copy_words<std::uint64_t>(from, to, bytes);
  } else if (aligned(from, to, 4)) {
    copy_words<std::uint32_t>(from, to, bytes);
  } else if (aligned(from, to, 2)) {
    copy_words<std::uint16_t>(from, to, bytes);
  } else {
    copy_words<std::byte>(from, to, bytes);
  }
}

/// The elements of a tile, of which each thread takes every so many. Compiled for the host too,
/// because `visit_types` is.
struct TransferTile {
  const Scaling& scaling;
  const std::byte* from;
  std::byte* to;
  std::int64_t elements;
  std::int64_t thread;

  template <typename From, typename To>
  __host__ __device__ void operator()() const {
    constexpr int count =
        16 / static_cast<int>(sizeof(From) < sizeof(To) ? sizeof(From) : sizeof(To));
    const TransferElement<From, To> element(scaling);
    std::int64_t whole = 0;
    if (aligned(from, to, 16)) {
      const auto* const sources = reinterpret_cast<const Several<From, count>*>(from);
      auto* const targets = reinterpret_cast<Several<To, count>*>(to);
      whole = elements / count;
      for (std::int64_t i = thread; i < whole; i += threads) {
        const Several<From, count> source = sources[i];
        Several<To, count> target;
        for (int k = 0; k < count; ++k) target.elements[k] = element(source.elements[k]);
        targets[i] = target;
      }
    }
    for (std::int64_t i = whole * count + thread; i < elements; i += threads) {
      From source;
      std::memcpy(&source, from + i * static_cast<std::int64_t>(sizeof(From)), sizeof(From));
      const To target = element(source);
      std::memcpy(to + i * static_cast<std::int64_t>(sizeof(To)), &target, sizeof(To));
    }
  }
};

__device__ const Segment& segment_of(const TransferTable& table, std::int64_t tile) {
  std::int64_t first = 0;
  std::int64_t end = table.count;
  while (end - first > 1) {
    const std::int64_t middle = (first + end) / 2;
    (table.segments[middle].first_tile <= tile ? first : end) = middle;
  }
  return table.segments[first];
}

__global__ void __launch_bounds__(threads, 3) transfer(const TransferTable table) {
  for (std::int64_t tile = blockIdx.x; tile < table.tiles; tile += gridDim.x) {
    const Segment& segment = segment_of(table, tile);
    const std::int64_t from_bytes = signed_size_of(segment.from_type);
    const std::int64_t to_bytes = signed_size_of(segment.to_type);
    const std::int64_t each = tile_elements(segment);
    const std::int64_t first = (tile - segment.first_tile) * each;
    const std::int64_t left = segment.elements - first;
    const std::int64_t elements = left < each ? left : each;
    const std::byte* const from = segment.from + first * from_bytes;
    std::byte* const to = segment.to + first * to_bytes;
    if (is_copy(segment)) {
      copy_bytes(from, to, elements * from_bytes);
    } else {
      const TransferTile work{segment.scaling, from, to, elements,
                              static_cast<std::int64_t>(threadIdx.x)};
      visit_types(segment.from_type, segment.to_type, work);
    }
  }
}

}  // namespace

cudaError_t launch_transfer(const TransferTable& table, cudaStream_t stream) {
  int device = 0;
  int multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const std::int64_t max_blocks = std::int64_t{multiprocessors} * blocks_per_multiprocessor;
  const auto blocks = static_cast<unsigned>(table.tiles < max_blocks ? table.tiles : max_blocks);
  transfer<<<blocks, threads, 0, stream>>>(table);
  return cudaGetLastError();
}

cudaError_t find_transfer_kernel() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, transfer);
}

}  // namespace kolo::internal::backend::gpu
