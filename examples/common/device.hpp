// Where to train, as the command line says.
#pragma once

#include <kolo/torch/device.hpp>
#include <string>

namespace examples {

/// "cpu", "cuda" for this rank's GPU, or "auto" for that if there is one. Throws
/// std::runtime_error, with the reason, if there is none to be had.
[[nodiscard]] torch::Device device_of(const std::string& choice);

}  // namespace examples
