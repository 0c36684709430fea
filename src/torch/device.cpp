// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include "kolo/torch/device.hpp"

#include <torch/cuda.h>

#include "kolo/session.hpp"

namespace kolo {

::torch::Device local_device() {
  const int slot = detail::local_slot();
  if (build_info().cuda.empty() || !::torch::cuda::is_available()) return {c10::DeviceType::CPU};
  const int devices = static_cast<int>(::torch::cuda::device_count());
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(slot % devices)};
}

}  // namespace kolo
