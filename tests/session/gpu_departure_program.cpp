// SPDX-License-Identifier: Apache-2.0
// One rank leaves in the way that the first argument names, while kernels of the others wait for
// it. The others print which rank is missing, and copy their model off the GPU.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kolo/cuda.hpp"
#include "kolo/kolo.hpp"

namespace {

// Takes longer than a rank needs to be killed in the middle of it.
constexpr std::size_t elements = std::size_t{4} << 20;

void train(const std::string& how, int leaver) {
  const kolo::Session session;
  const kolo::CudaDevice gpu(kolo::local_rank());
  const auto memory = gpu.allocate(elements * sizeof(float));
  const auto gradient = [&](std::size_t length) {
    return kolo::TensorView(reinterpret_cast<float*>(memory.get()), kolo::Shape{length},
                            kolo::Device{kolo::DeviceType::cuda, gpu.index()});
  };
  const std::vector<float> ones(elements, 1.0F);
  gpu.copy_to_device(memory.get(), ones.data(), elements * sizeof(float));
  // Not what is being reduced, which has unspecified contents after a failure.
  std::vector<float> model(1000, 1.0F);
  const auto model_memory = gpu.allocate(model.size() * sizeof(float));
  gpu.copy_to_device(model_memory.get(), model.data(), model.size() * sizeof(float));
  model.assign(model.size(), 0.0F);
  try {
    for (int step = 0; step < 5; ++step) kolo::allreduce(gradient(1000), {.name = "gradient"});
    if (kolo::rank() == leaver) {
      if (how == "thrown") throw std::runtime_error("thrown on purpose");
      kolo::Future<void> pending = kolo::allreduce_async(gradient(elements), {.name = "large"});
      (void)pending.wait_for(std::chrono::milliseconds(30));  // any moment will do
      std::raise(SIGKILL);
    }
    // The leaver may have done its part of the first.
    for (int i = 0; i < 2; ++i) kolo::allreduce(gradient(elements), {.name = "large"});
  } catch (const kolo::PeerLeft& error) {
    gpu.copy_to_host(model.data(), model_memory.get(), model.size() * sizeof(float));
    std::printf("rank %d misses rank %d, its model has %.1f: %s\n", kolo::rank(),
                error.ranks().at(0), static_cast<double>(model.front()), error.what());
    std::fflush(stdout);
    throw;
  }
}

}  // namespace

int main(int, char** argv) {
  try {
    train(argv[1], std::atoi(argv[2]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "caught: %s\n", error.what());
    return 1;
  }
}
