#include "kolo/torch/device.hpp"

#include <torch/cuda.h>

#include "kolo/session.hpp"

namespace kolo {

::torch::Device local_device() {
  const int rank_here = local_rank();
  if (build_info().cuda.empty() || !::torch::cuda::is_available()) return {c10::DeviceType::CPU};
  const int devices = static_cast<int>(::torch::cuda::device_count());
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(rank_here % devices)};
}

}  // namespace kolo
