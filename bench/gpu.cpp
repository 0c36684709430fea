// SPDX-License-Identifier: Apache-2.0
// The times of the kernel and of an allreduce over NCCL on one GPU, measured by events over many
// repetitions on tensors that do not fit into its cache. Usage: bench-gpu [DEVICE]
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/nccl/library.hpp"
#include "backend/gpu/runtime/gpu.hpp"
#include "gradient_sets.hpp"
#include "kolo/cuda.hpp"
#include "kolo/kolo.hpp"

namespace {

using kolo::internal::backend::gpu::Gpu;
using kolo::internal::backend::gpu::Segment;
using kolo::internal::backend::gpu::TransferLaunch;
using kolo::internal::backend::nccl::State;

constexpr int repetitions = 100;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  fmt::print(stderr, "CUDA failed: {}\n", cudaGetErrorString(error));
  std::exit(1);
}

/// On the GPU, freed at the end of the process.
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

/// Packs tensors of these sizes into a buffer, unpacks them, and copies as many bytes in one piece.
void compare_packing(Gpu& gpu, const std::string& name, const std::vector<std::int64_t>& elements) {
  std::int64_t bytes = 0;
  for (const std::int64_t count : elements) bytes += (count * 4 + 15) / 16 * 16;
  // Used one after another, so that together they do not fit into the cache.
  const auto sets = static_cast<std::size_t>(std::max<std::int64_t>(2, (512 << 20) / bytes));
  struct Set {
    std::byte* tensors;
    std::byte* buffer;
    Segment* pack;
    Segment* unpack;
    std::int64_t tiles;
  };
  std::vector<Set> all;
  for (std::size_t i = 0; i < sets; ++i) {
    Set set{allocate(bytes), allocate(bytes), nullptr, nullptr, 0};
    std::vector<Segment> pack;
    std::int64_t offset = 0;
    for (const std::int64_t count : elements) {
      pack.push_back({.from = set.tensors + offset, .to = set.buffer + offset, .elements = count});
      pack.back().from_type = pack.back().to_type = kolo::DType::f32;
      offset += (count * 4 + 15) / 16 * 16;
    }
    set.tiles = number_tiles(pack);
    std::vector<Segment> unpack = pack;
    for (Segment& segment : unpack) {
      std::byte* const to = segment.to;
      segment.to = const_cast<std::byte*>(segment.from);
      segment.from = to;
    }
    const std::size_t table = pack.size() * sizeof(Segment);
    set.pack = reinterpret_cast<Segment*>(allocate(static_cast<std::int64_t>(table)));
    set.unpack = reinterpret_cast<Segment*>(allocate(static_cast<std::int64_t>(table)));
    check(cudaMemcpy(set.pack, pack.data(), table, cudaMemcpyHostToDevice));
    check(cudaMemcpy(set.unpack, unpack.data(), table, cudaMemcpyHostToDevice));
    all.push_back(set);
  }
  const auto set_of = [&](int i) -> Set& { return all[static_cast<std::size_t>(i) % sets]; };
  const auto count = static_cast<std::int64_t>(elements.size());
  const double copy = time_on_gpu(gpu.stream(), [&](int i) {
    check(cudaMemcpyAsync(set_of(i).buffer, set_of(i).tensors, static_cast<std::size_t>(bytes),
                          cudaMemcpyDeviceToDevice, gpu.stream()));
  });
  const double pack = time_on_gpu(gpu.stream(), [&](int i) {
    gpu.runtime()->launch({set_of(i).pack, count, set_of(i).tiles}, gpu.stream());
  });
  const double unpack = time_on_gpu(gpu.stream(), [&](int i) {
    gpu.runtime()->launch({set_of(i).unpack, count, set_of(i).tiles}, gpu.stream());
  });
  const auto rate = [&](double microseconds) {
    return 2.0 * static_cast<double>(bytes) / microseconds / 1000.0;
  };
  fmt::print(
      "{:<24} copy {:8.1f} us {:7.0f} GB/s   pack {:8.1f} us {:7.0f} GB/s ({:3.0f} %)   "
      "unpack {:8.1f} us {:7.0f} GB/s ({:3.0f} %)\n",
      name, copy, rate(copy), pack, rate(pack), 100 * copy / pack, unpack, rate(unpack),
      100 * copy / unpack);
  for (const Set& set : all) {
    for (void* memory : {static_cast<void*>(set.tensors), static_cast<void*>(set.buffer),
                         static_cast<void*>(set.pack), static_cast<void*>(set.unpack)})
      check(cudaFree(memory));
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

/// Out of place, from the call until it is done: bare NCCL, then Kolo.
void compare_allreduces(Gpu& gpu, int device) {
  const auto nccl = kolo::internal::backend::nccl::find_library();
  if (nccl == nullptr) return;
  kolo::internal::backend::nccl::CommHandle comm = nullptr;
  State state = nccl->init(comm, 1, nccl->make_unique_id(), 0);
  while (state == State::in_progress) state = nccl->state(comm);
  const kolo::Session session({.gpu_operations = "nccl"});
  for (const std::int64_t bytes :
       {std::int64_t{4}, std::int64_t{1} << 20, std::int64_t{100000000}}) {
    std::byte* const from = allocate(bytes);
    std::byte* const to = allocate(bytes);
    const double bare = time_on_host([&] {
      nccl->group_start();
      nccl->all_reduce(from, to, bytes / 4, kolo::DType::f32,
                       kolo::internal::backend::nccl::RedOp::sum, comm, gpu.stream());
      State done = nccl->group_end(comm);
      while (done == State::in_progress) done = nccl->state(comm);
      check(cudaStreamSynchronize(gpu.stream()));
    });
    const kolo::Device place{kolo::DeviceType::cuda, device};
    const kolo::Shape shape{bytes / 4};
    const kolo::ConstTensorView input(static_cast<const void*>(from), shape, kolo::DType::f32,
                                      place);
    const kolo::TensorView output(static_cast<void*>(to), shape, kolo::DType::f32, place);
    const double ours = time_on_host(
        [&] { kolo::allreduce(input, output, {.name = "x", .op = kolo::ReduceOp::sum}); });
    fmt::print("allreduce of {:>9} B   bare {:8.1f} us   Kolo {:8.1f} us\n", bytes, bare, ours);
    check(cudaFree(from));
    check(cudaFree(to));
  }
  nccl->destroy(comm);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int device = argc > 1 ? std::atoi(argv[1]) : 0;
    Gpu gpu(kolo::internal::backend::gpu::find_runtime());
    static_cast<void>(gpu.mark({kolo::DeviceType::cuda, device}, nullptr));
    check(cudaSetDevice(device));
    fmt::print("{}\n", gpu.properties().name);
    compare_packing(gpu, "one tensor of 100 MB", {25000000});
    std::vector<std::int64_t> resnet;
    for (const perf::Gradient& gradient : perf::resnet50())
      resnet.push_back(gradient.shape.elements());
    compare_packing(gpu, "ResNet-50's gradients", resnet);
    compare_packing(gpu, "1000 x 1 KB", std::vector<std::int64_t>(1000, 256));
    compare_allreduces(gpu, device);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench-gpu: {}\n", error.what());
    return 1;
  }
}
