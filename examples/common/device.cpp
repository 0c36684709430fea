// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <torch/cuda.h>

#include <kolo/session.hpp>
#include <stdexcept>

namespace examples {

torch::Device device_of(const std::string& choice) {
  if (choice == "cpu") return torch::kCPU;
  const torch::Device device = kolo::local_device();  // KOLO: this rank's GPU
  if (choice != "cuda" || device.is_cuda()) return device;
  if (kolo::build_info().cuda.empty())
    throw std::runtime_error("--device cuda: this build of Kolo is without CUDA");
  throw std::runtime_error("--device cuda: LibTorch is without CUDA here, or finds no GPU");
}

}  // namespace examples
