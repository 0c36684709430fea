// SPDX-License-Identifier: Apache-2.0
// The device that the command line selects.
#pragma once

#include <kolo/torch/state.hpp>
#include <string>

namespace examples {

/// `choice` is "cpu", "cuda" for this rank's GPU, or "auto" for the GPU if there is one. Throws
/// std::runtime_error, with the reason, if "cuda" is not available.
[[nodiscard]] torch::Device device_of(const std::string& choice);

}  // namespace examples
