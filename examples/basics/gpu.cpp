// SPDX-License-Identifier: Apache-2.0
// Averages a tensor in the memory of each rank's GPU, without a framework; on the CPU if no GPU is
// found. Run as: mpirun -np 2 gpu
#include <kolo/cuda.hpp>
#include <kolo/kolo.hpp>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <vector>

// The gradient is on the host. A real program computes it on the GPU.
void average_on_gpu(std::vector<float>& gradient, int index) {
  const kolo::CudaDevice device(index);
  const std::size_t bytes = gradient.size() * sizeof(float);
  const std::shared_ptr<std::byte> memory = device.allocate(bytes);
  device.copy_to_device(memory.get(), gradient.data(), bytes);

  const kolo::Device gpu{kolo::DeviceType::cuda, device.index()};
  const kolo::Shape shape{static_cast<std::int64_t>(gradient.size())};
  kolo::allreduce(kolo::TensorView(memory.get(), shape, kolo::DType::f32, gpu),
                  {.name = "gradient"});
  device.copy_to_host(gradient.data(), memory.get(), bytes);
}

int main(int argc, char** argv) {
  kolo::Session session(argc, argv);
  std::vector<float> gradient(1000, static_cast<float>(kolo::rank()));

  if (const int gpus = kolo::CudaDevice::count(); gpus > 0) {
    average_on_gpu(gradient, kolo::local_rank() % gpus);
  } else {
    kolo::allreduce(gradient, {.name = "gradient"});
  }

  if (kolo::rank() == 0) {
    std::cout << kolo::CudaDevice::count() << " GPUs, mean " << gradient.front() << '\n';
  }
  return gradient.back() == static_cast<float>(kolo::size() - 1) / 2 ? 0 : 1;
}
