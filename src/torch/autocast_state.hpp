// SPDX-License-Identifier: Apache-2.0
// This thread's autocast state for a type of device, whose functions differ between versions of
// LibTorch.
#pragma once

#include <ATen/core/ivalue.h>  // first: see kolo/torch/optimizer.hpp

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace kolo::internal {

struct AutocastState {
  bool enabled;
  c10::ScalarType dtype;
};

/// `type` is that of CPUs or GPUs.
[[nodiscard]] AutocastState autocast_state(c10::DeviceType type);
void set_autocast_state(c10::DeviceType type, const AutocastState& state);

}  // namespace kolo::internal
