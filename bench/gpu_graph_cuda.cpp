// SPDX-License-Identifier: Apache-2.0
#include "gpu_graph.hpp"  // before LibTorch, as clang 14 needs it

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/cuda.h>
#include <kolo/cuda.hpp>

#include <exception>
#include <memory>

namespace {

constexpr int runs_before = 11;  // as many as PyTorch asks of DistributedDataParallel

/// A failed capture must end too, or the GPU stays unusable.
void abandon(at::cuda::CUDAGraph& graph) noexcept {
  try {
    graph.capture_end();
  } catch (const std::exception&) {  // the reason is known from the failure itself
  }
}

}  // namespace

bool graphs::exist() { return true; }

std::function<void()> graphs::capture(const torch::Device& device,
                                      const std::function<void()>& prepare,
                                      const std::function<void()>& work) {
  if (device.is_cpu())
    return [prepare, work] {
      prepare();
      work();
    };
  const c10::cuda::CUDAStreamGuard guard(
      c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index()));
  {
    const kolo::GraphWarmUp warm_up;
    for (int i = 0; i < runs_before; ++i) {
      prepare();
      work();
    }
  }
  torch::cuda::synchronize();
  prepare();
  const auto graph = std::make_shared<at::cuda::CUDAGraph>();
  // Other threads, such as NCCL's, may allocate memory meanwhile.
  graph->capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  try {
    work();
  } catch (...) {
    abandon(*graph);
    throw;
  }
  graph->capture_end();
  torch::cuda::synchronize();
  return [graph] { graph->replay(); };
}
