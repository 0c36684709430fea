// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "gpu_graph.hpp"

bool graphs::exist() { return false; }

std::function<void()> graphs::capture(const torch::Device& device,
                                      const std::function<void()>& prepare,
                                      const std::function<void()>& work) {
  if (!device.is_cpu()) throw std::runtime_error("this LibTorch has no CUDA graphs");
  return [prepare, work] {
    prepare();
    work();
  };
}
