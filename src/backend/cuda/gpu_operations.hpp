// The choice of what carries GPU tensors.
#pragma once

#include <cstdint>

namespace kolo::backend::cuda {

enum class GpuOperations : std::uint8_t { automatic, nccl, staged };

}  // namespace kolo::backend::cuda
