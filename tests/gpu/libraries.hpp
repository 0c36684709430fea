// SPDX-License-Identifier: Apache-2.0
// The libraries that the programs of gpu-check use: CUDA and NCCL on a machine with a GPU, their
// doubles with the argument --doubles.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "fake_cuda.hpp"
#include "session/engine/devices.hpp"

namespace kolo::gpu_check {

/// True if the argument is there, which is removed.
inline bool take_argument(std::vector<std::string_view>& arguments, std::string_view wanted) {
  return std::erase(arguments, wanted) > 0;
}

/// The double of CUDA has one GPU, which all ranks share.
inline internal::session::GpuLibraries find_libraries(bool doubles) {
  if (!doubles) return {};
  return {std::make_shared<internal::backend::FakeCuda>(std::vector{0}, 7), [] { return nullptr; }};
}

}  // namespace kolo::gpu_check
