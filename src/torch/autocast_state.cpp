// SPDX-License-Identifier: Apache-2.0
// Implements autocast_state.hpp for LibTorch 2.4 and later.
#include "torch/autocast_state.hpp"

#include <ATen/autocast_mode.h>

namespace kolo::internal {

AutocastState autocast_state(c10::DeviceType type) {
  return {at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)};
}

void set_autocast_state(c10::DeviceType type, const AutocastState& state) {
  at::autocast::set_autocast_enabled(type, state.enabled);
  at::autocast::set_autocast_dtype(type, state.dtype);
}

}  // namespace kolo::internal
