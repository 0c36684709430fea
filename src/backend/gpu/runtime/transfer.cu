// SPDX-License-Identifier: Apache-2.0
// The transfer kernel. Each block of threads takes tile after tile, finds the segment of the tile,
// and moves its elements in accesses of 16 bytes if both addresses allow it.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "backend/gpu/runtime/transfer_element.hpp"
#include "backend/gpu/runtime/transfer_kernel.hpp"

namespace kolo::internal::backend::gpu {
namespace {

constexpr int threads = 256;
constexpr int blocks_per_multiprocessor = 8;

/// Several elements in one access. Memory at unaligned addresses is accessed element by element.
template <typename T, int count>
struct alignas(sizeof(T) * count < 16 ? sizeof(T) * count : 16) Several {
  T elements[count];
};

__host__ __device__ bool aligned(const void* a, const void* b, std::size_t bytes) {
  return ((reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b)) % bytes) == 0;
}

/// Tells the compiler that `memory` is global memory of the device or the host, not shared or local
/// memory. Otherwise the GPU has to determine the kind of memory at each access.
__host__ __device__ void assume_global([[maybe_unused]] const void* memory) {
#ifdef __CUDA_ARCH__
  __builtin_assume(__isGlobal(memory));
#endif
}

/// The number of loads that one thread has in flight at once. Four loads of 16 bytes hide the
/// latency of memory. Integers get one load: their division needs the registers, and takes longer
/// than the loads.
template <typename Access, typename To>
constexpr int loads_of = is_half_type<To> || std::is_floating_point_v<To>
                             ? std::max(1, 64 / static_cast<int>(sizeof(Access)))
                             : 1;

/// Moves whole accesses: each is loaded from `source`, converted by `make`, and stored to `target`.
/// All loads of a round precede its stores, since the compiler must assume that a store changes
/// memory that is loaded after it. Each access is stored at the index from which it was loaded, so
/// source and target may be the same memory. A tile is small enough for counters of 32 bits, which
/// leave more registers for the loads.
template <int loads, typename Source, typename Target, typename Make>
__host__ __device__ void move_accesses(const Source* source, Target* target, int count, int thread,
                                       const Make& make) {
  int i = thread;
  for (; i + (loads - 1) * threads < count; i += loads * threads) {
    Source held[loads];
#pragma unroll
    for (int k = 0; k < loads; ++k) held[k] = source[i + k * threads];
#pragma unroll
    for (int k = 0; k < loads; ++k) target[i + k * threads] = make(held[k]);
  }
  for (; i < count; i += threads) target[i] = make(source[i]);
}

struct Same {
  template <typename Word>
  __host__ __device__ Word operator()(const Word& word) const {
    return word;
  }
};

/// Copies bytes in accesses of `Word`, and the remainder byte by byte.
template <typename Word>
__device__ void copy_words(const std::byte* from, std::byte* to, int bytes) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int words = bytes / static_cast<int>(sizeof(Word));
  move_accesses<4>(reinterpret_cast<const Word*>(from), reinterpret_cast<Word*>(to), words, thread,
                   Same());
  for (int i = words * static_cast<int>(sizeof(Word)) + thread; i < bytes; i += threads)
    to[i] = from[i];
}

__device__ void copy_bytes(const std::byte* from, std::byte* to, int bytes) {
  assume_global(from);
  assume_global(to);
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

/// The lower half of a pair of half-precision numbers, as bits.
template <typename Pair>
__host__ __device__ std::uint16_t lower_bits(const Pair& pair) {
  std::uint32_t word = 0;
  static_assert(sizeof(pair) == sizeof(word));
  std::memcpy(&word, &pair, sizeof(word));
  return static_cast<std::uint16_t>(word);
}

/// Conversion by the GPU's instructions. The bits are those of `SoftwareConversion`, except for
/// NaNs.
///
/// Values are rounded in pairs: ptxas 13.0 miscompiles a 16-bit register that holds the result of
/// converting a single value and is then stored byte by byte, as for addresses of unknown
/// alignment. It converts the number to an integer (F2I.U8.F16 in SASS) instead of splitting its
/// bits.
struct HardwareConversion {
  template <typename T>
  __host__ __device__ static Computed<T> widen(T element) {
    if constexpr (std::is_same_v<T, F16>) {
      return __half2float(__ushort_as_half(element.bits));
    } else {
      return computed(element);
    }
  }
  template <typename T, typename Real>
  __host__ __device__ static T round(Real value) {
    if constexpr (std::is_same_v<T, F16>) {
      return {lower_bits(__floats2half2_rn(static_cast<float>(value), 0.0F))};
    } else if constexpr (std::is_same_v<T, BF16>) {
      return {lower_bits(__floats2bfloat162_rn(static_cast<float>(value), 0.0F))};
    } else {
      return rounded<T>(value);
    }
  }
};

/// Converts and scales each element of an access.
template <typename From, typename To, int count>
struct EachElement {
  const TransferElement<From, To, HardwareConversion>& element;

  __host__ __device__ Several<To, count> operator()(const Several<From, count>& source) const {
    Several<To, count> target;
    for (int k = 0; k < count; ++k) target.elements[k] = element(source.elements[k]);
    return target;
  }
};

/// Moves the elements of a tile; each thread takes every `threads`-th access. Also compiled for the
/// host, because `visit_types` is.
struct TransferTile {
  const Scaling& scaling;
  const std::byte* from;
  std::byte* to;
  int elements;
  int thread;

  template <typename From, typename To>
  __host__ __device__ void operator()() const {
    constexpr int count =
        16 / static_cast<int>(sizeof(From) < sizeof(To) ? sizeof(From) : sizeof(To));
    const TransferElement<From, To, HardwareConversion> element(scaling);
    assume_global(from);
    assume_global(to);
    int whole = 0;
    if (aligned(from, to, 16)) {
      whole = elements / count;
      move_accesses<loads_of<Several<From, count>, To>>(
          reinterpret_cast<const Several<From, count>*>(from),
          reinterpret_cast<Several<To, count>*>(to), whole, thread,
          EachElement<From, To, count>{element});
    }
    for (int i = whole * count + thread; i < elements; i += threads) {
      From source;
      std::memcpy(&source, from + i * static_cast<int>(sizeof(From)), sizeof(From));
      const To target = element(source);
      std::memcpy(to + i * static_cast<int>(sizeof(To)), &target, sizeof(To));
    }
  }
};

/// Finds the segment of a tile by binary search.
__device__ const Segment& segment_of(const TransferTable& table, std::int64_t tile) {
  const Segment* const segments = table.segments.data();
  std::int64_t first = 0;
  std::int64_t end = table.count;
  while (end - first > 1) {
    const std::int64_t middle = (first + end) / 2;
    (segments[middle].first_tile <= tile ? first : end) = middle;
  }
  return segments[first];
}

__global__ void __launch_bounds__(threads, 3)
    transfer(const __grid_constant__ TransferTable table) {
  for (std::int64_t tile = blockIdx.x; tile < table.tiles; tile += gridDim.x) {
    const Segment& segment = segment_of(table, tile);
    const std::int64_t from_bytes = signed_size_of(segment.from_type);
    const std::int64_t to_bytes = signed_size_of(segment.to_type);
    const std::int64_t each = tile_elements(segment);
    const std::int64_t first = (tile - segment.first_tile) * each;
    const std::int64_t left = segment.elements - first;
    const auto elements = static_cast<int>(left < each ? left : each);
    const std::byte* const from = segment.from + first * from_bytes;
    std::byte* const to = segment.to + first * to_bytes;
    if (is_copy(segment)) {
      copy_bytes(from, to, elements * static_cast<int>(from_bytes));
    } else {
      const TransferTile work{segment.scaling, from, to, elements, static_cast<int>(threadIdx.x)};
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
  // Unlike cudaGetLastError after <<<>>>, this call returns no earlier error of the program.
  TransferTable argument = table;
  std::array<void*, 1> arguments{&argument};
  return cudaLaunchKernel(transfer, dim3(blocks), dim3(threads), arguments.data(), 0, stream);
}

cudaError_t find_transfer_kernel() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, transfer);
}

}  // namespace kolo::internal::backend::gpu
