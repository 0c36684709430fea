// SPDX-License-Identifier: Apache-2.0
// Captures a step with an allreduce into a CUDA graph, and replays it. Needs a GPU for each rank
// and NCCL 2.27 or later. Run as: mpirun -np 2 cuda_graph
#include <cuda_runtime_api.h>
#include <kolo/cuda.hpp>
#include <kolo/kolo.hpp>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <vector>

void check(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}

// Returns the first element after some replays of a step that averages it over the ranks.
float replay(const kolo::CudaDevice& device, cudaStream_t stream) {
  const std::vector<float> input(1000, static_cast<float>(kolo::rank()));
  std::vector<float> output(input.size());
  const std::size_t bytes = input.size() * sizeof(float);
  const std::shared_ptr<std::byte> memory = device.allocate(bytes);
  const kolo::TensorView gradient(
      memory.get(), kolo::Shape{static_cast<std::int64_t>(input.size())}, kolo::DType::f32,
      kolo::Device{kolo::DeviceType::cuda, device.index()});

  const kolo::CudaStreamScope scope(stream);
  const auto step = [&] { kolo::allreduce(gradient, {.name = "gradient"}); };
  {
    const kolo::GraphWarmUp warm_up;
    step();
  }
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  step();
  check(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t steps = nullptr;
  check(cudaGraphInstantiate(&steps, graph, 0));

  for (int i = 0; i < 10; ++i) {
    device.copy_to_device(memory.get(), input.data(), bytes);
    check(cudaGraphLaunch(steps, stream));
  }
  device.copy_to_host(output.data(), memory.get(), bytes);  // waits for the stream
  kolo::barrier();  // throws if a rank was lost, of which replays say nothing

  check(cudaGraphExecDestroy(steps));  // before the session ends
  check(cudaGraphDestroy(graph));
  return output.front();
}

int main(int argc, char** argv) {
  kolo::Session session(argc, argv);
  if (kolo::CudaDevice::count() < kolo::local_size()) {
    std::cout << "needs a GPU for each rank\n";
    return 0;
  }
  const kolo::CudaDevice device(kolo::local_rank());
  check(cudaSetDevice(device.index()));
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const float mean = replay(device, stream);
  check(cudaStreamDestroy(stream));
  if (kolo::rank() == 0) std::cout << "mean " << mean << '\n';
}
