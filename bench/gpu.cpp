// SPDX-License-Identifier: Apache-2.0
// The times of the packing kernel and of an allreduce over NCCL on one GPU, measured with CUDA
// events over many repetitions, on tensors that do not fit into the GPU's cache. Kolo's allreduce
// is compared with that of a blocking NCCL communicator, which a program without Kolo would use.
//
// Usage: bench-gpu [DEVICE]
//        bench-gpu --plan    print what is measured; needs no GPU
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/runtime/gpu.hpp"
#include "gradient_sets.hpp"
#include "kolo/cuda.hpp"
#include "kolo/kolo.hpp"

namespace {

using kolo::internal::backend::gpu::Gpu;
using kolo::internal::backend::gpu::Segment;

constexpr int repetitions = 100;
constexpr std::array allreduce_bytes{std::int64_t{4}, std::int64_t{1} << 20,
                                     std::int64_t{100000000}};

/// Tensors of floats that are packed together.
struct TensorSet {
  std::string name;
  std::vector<std::int64_t> elements{};
};

std::vector<TensorSet> tensor_sets() {
  std::vector<TensorSet> sets{{"one tensor of 100 MB", {25000000}}, {"ResNet-50's gradients"}};
  for (const perf::Gradient& gradient : perf::resnet50())
    sets.back().elements.push_back(gradient.shape.elements());
  sets.push_back({"1000 x 1 KB", std::vector<std::int64_t>(1000, 256)});
  return sets;
}

std::int64_t padded_bytes(std::int64_t elements) { return (elements * 4 + 15) / 16 * 16; }

std::int64_t packed_bytes(const TensorSet& set) {
  std::int64_t bytes = 0;
  for (const std::int64_t count : set.elements) bytes += padded_bytes(count);
  return bytes;
}

/// Segments that copy each tensor of the set from its offset after `from` to the same offset after
/// `to`.
std::vector<Segment> segments_between(const TensorSet& set, const std::byte* from, std::byte* to) {
  std::vector<Segment> segments;
  std::int64_t offset = 0;
  for (const std::int64_t count : set.elements) {
    segments.push_back({.from = from + offset, .to = to + offset, .elements = count});
    segments.back().from_type = segments.back().to_type = kolo::DType::f32;
    offset += padded_bytes(count);
  }
  return segments;
}

void print_plan() {
  for (const TensorSet& set : tensor_sets()) {
    fmt::print("{:<24} {} tensors, {} bytes: copy, pack, unpack\n", set.name, set.elements.size(),
               packed_bytes(set));
  }
  for (const std::int64_t bytes : allreduce_bytes)
    fmt::print("allreduce of {:>9} B   bare NCCL, Kolo\n", bytes);
}

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  fmt::print(stderr, "CUDA failed: {}\n", cudaGetErrorString(error));
  std::exit(1);
}

void check(ncclResult_t result) {
  if (result == ncclSuccess) return;
  fmt::print(stderr, "NCCL failed: {}\n", ncclGetErrorString(result));
  std::exit(1);
}

/// Memory on the GPU, freed at the end of the process.
std::byte* allocate(std::int64_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, static_cast<std::size_t>(bytes)));
  check(cudaMemset(memory, 0, static_cast<std::size_t>(bytes)));
  return static_cast<std::byte*>(memory);
}

/// Microseconds on the GPU for one repetition.
template <typename Work>
double time_on_gpu(cudaStream_t stream, Work work) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  for (int i = 0; i < 10; ++i) work(i);
  check(cudaEventRecord(begin, stream));
  for (int i = 0; i < repetitions; ++i) work(i);
  check(cudaEventRecord(end, stream));
  check(cudaEventSynchronize(end));
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin, end));
  return 1000.0 * static_cast<double>(milliseconds) / repetitions;
}

/// One copy of a tensor set. Repetitions cycle through several copies that together exceed the
/// cache.
struct OnGpu {
  std::byte* tensors;
  std::byte* buffer;
  std::vector<Segment> pack;
  std::vector<Segment> unpack;
};

OnGpu place(const TensorSet& set) {
  OnGpu made{allocate(packed_bytes(set)), allocate(packed_bytes(set)), {}, {}};
  made.pack = segments_between(set, made.tensors, made.buffer);
  made.unpack = segments_between(set, made.buffer, made.tensors);
  return made;
}

/// Measures packing tensors into a buffer, unpacking them, and copying the same bytes in one piece.
void compare_packing(Gpu& gpu, const TensorSet& tensors) {
  const std::int64_t bytes = packed_bytes(tensors);
  const auto sets = static_cast<std::size_t>(std::max<std::int64_t>(2, (512 << 20) / bytes));
  std::vector<OnGpu> all;
  for (std::size_t i = 0; i < sets; ++i) all.push_back(place(tensors));
  const auto set_of = [&](int i) -> OnGpu& { return all[static_cast<std::size_t>(i) % sets]; };
  const double copy = time_on_gpu(gpu.stream(), [&](int i) {
    check(cudaMemcpyAsync(set_of(i).buffer, set_of(i).tensors, static_cast<std::size_t>(bytes),
                          cudaMemcpyDeviceToDevice, gpu.stream()));
  });
  const double pack = time_on_gpu(
      gpu.stream(), [&](int i) { gpu.runtime()->launch(set_of(i).pack, gpu.stream()); });
  const double unpack = time_on_gpu(
      gpu.stream(), [&](int i) { gpu.runtime()->launch(set_of(i).unpack, gpu.stream()); });
  const auto rate = [&](double microseconds) {
    return 2.0 * static_cast<double>(bytes) / microseconds / 1000.0;
  };
  fmt::print(
      "{:<24} copy {:8.1f} us {:7.0f} GB/s   pack {:8.1f} us {:7.0f} GB/s ({:3.0f} %)   "
      "unpack {:8.1f} us {:7.0f} GB/s ({:3.0f} %)\n",
      tensors.name, copy, rate(copy), pack, rate(pack), 100 * copy / pack, unpack, rate(unpack),
      100 * copy / unpack);
  for (const OnGpu& set : all) {
    check(cudaFree(set.tensors));
    check(cudaFree(set.buffer));
  }
}

template <typename Work>
double time_on_host(Work work) {
  for (int i = 0; i < 10; ++i) work();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repetitions; ++i) work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
             .count() /
         repetitions;
}

/// A communicator of one rank with NCCL's default blocking calls.
ncclComm_t make_blocking_communicator() {
  ncclUniqueId id{};
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  check(ncclGetUniqueId(&id));
  check(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  return comm;
}

/// Times an out-of-place allreduce from call to completion: bare NCCL, then Kolo.
void compare_allreduces(Gpu& gpu, int device) {
  ncclComm_t comm = make_blocking_communicator();
  const kolo::Session session({.gpu_operations = "nccl"});
  for (const std::int64_t bytes : allreduce_bytes) {
    std::byte* const from = allocate(bytes);
    std::byte* const to = allocate(bytes);
    const double bare = time_on_host([&] {
      check(ncclAllReduce(from, to, static_cast<std::size_t>(bytes) / 4, ncclFloat32, ncclSum, comm,
                          gpu.stream()));
      check(cudaStreamSynchronize(gpu.stream()));
    });
    const kolo::Device place{kolo::DeviceType::cuda, device};
    const kolo::Shape shape{bytes / 4};
    const kolo::ConstTensorView input(static_cast<const void*>(from), shape, kolo::DType::f32,
                                      place);
    const kolo::TensorView output(static_cast<void*>(to), shape, kolo::DType::f32, place);
    const double ours = time_on_host([&] {
      kolo::allreduce(input, output, {.name = "x", .op = kolo::ReduceOp::sum});
      check(cudaStreamSynchronize(nullptr));  // the current stream waits for the result
    });
    fmt::print("allreduce of {:>9} B   bare {:8.1f} us   Kolo {:8.1f} us\n", bytes, bare, ours);
    check(cudaFree(from));
    check(cudaFree(to));
  }
  check(ncclCommDestroy(comm));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 1 && std::string_view(argv[1]) == "--plan") {
      print_plan();
      return 0;
    }
    const int device = argc > 1 ? std::atoi(argv[1]) : 0;
    Gpu gpu(kolo::internal::backend::gpu::find_runtime());
    static_cast<void>(gpu.mark({kolo::DeviceType::cuda, device}, nullptr));
    check(cudaSetDevice(device));
    fmt::print("{}\n", gpu.properties().name);
    for (const TensorSet& set : tensor_sets()) compare_packing(gpu, set);
    compare_allreduces(gpu, device);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench-gpu: {}\n", error.what());
    return 1;
  }
}
