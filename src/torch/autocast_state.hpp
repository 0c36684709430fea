// SPDX-License-Identifier: Apache-2.0
// LibTorch's setting for mixed precision.
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/version.h>

namespace kolo::internal {

/// The setting of this thread for CPUs or GPUs. LibTorch before 2.4 has separate functions for
/// each.
struct AutocastState {
  bool enabled;
  c10::ScalarType dtype;
};

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
inline AutocastState autocast_state(c10::DeviceType type) {
  return {at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)};
}

inline void set_autocast_state(c10::DeviceType type, const AutocastState& state) {
  at::autocast::set_autocast_enabled(type, state.enabled);
  at::autocast::set_autocast_dtype(type, state.dtype);
}
#else
inline AutocastState autocast_state(c10::DeviceType type) {
  if (type == c10::DeviceType::CPU)
    return {at::autocast::is_cpu_enabled(), at::autocast::get_autocast_cpu_dtype()};
  return {at::autocast::is_enabled(), at::autocast::get_autocast_gpu_dtype()};
}

inline void set_autocast_state(c10::DeviceType type, const AutocastState& state) {
  if (type == c10::DeviceType::CPU) {
    at::autocast::set_cpu_enabled(state.enabled);
    at::autocast::set_autocast_cpu_dtype(state.dtype);
  } else {
    at::autocast::set_enabled(state.enabled);
    at::autocast::set_autocast_gpu_dtype(state.dtype);
  }
}
#endif

}  // namespace kolo::internal
