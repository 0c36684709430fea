// SPDX-License-Identifier: Apache-2.0
// The autocast state of this thread for a type of device. Versions of LibTorch have different
// functions for it.
#pragma once

#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace kolo::internal {

struct AutocastState {
  bool enabled;
  c10::ScalarType dtype;
};

/// Returns and sets the state. `type` is CPU or CUDA.
[[nodiscard]] AutocastState autocast_state(c10::DeviceType type);
void set_autocast_state(c10::DeviceType type, const AutocastState& state);

}  // namespace kolo::internal
