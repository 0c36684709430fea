// SPDX-License-Identifier: Apache-2.0
// Implements autocast_state.hpp for LibTorch before 2.4, which has separate functions for each type
// of device.
#include "torch/autocast_state.hpp"

#include <ATen/autocast_mode.h>

namespace kolo::internal {

AutocastState autocast_state(c10::DeviceType type) {
  if (type == c10::DeviceType::CPU)
    return {at::autocast::is_cpu_enabled(), at::autocast::get_autocast_cpu_dtype()};
  return {at::autocast::is_enabled(), at::autocast::get_autocast_gpu_dtype()};
}

void set_autocast_state(c10::DeviceType type, const AutocastState& state) {
  if (type == c10::DeviceType::CPU) {
    at::autocast::set_cpu_enabled(state.enabled);
    at::autocast::set_autocast_cpu_dtype(state.dtype);
  } else {
    at::autocast::set_enabled(state.enabled);
    at::autocast::set_autocast_gpu_dtype(state.dtype);
  }
}

}  // namespace kolo::internal
