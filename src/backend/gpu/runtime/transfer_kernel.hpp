// SPDX-License-Identifier: Apache-2.0
// The kernel's launch, between the code that nvcc compiles and the rest.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/gpu/runtime/transfer.hpp"

namespace kolo::internal::backend::gpu {

/// On the current device; there is at least one tile.
[[nodiscard]] cudaError_t launch_transfer(const TransferTable& table, cudaStream_t stream);

/// An error if the current device cannot run it.
[[nodiscard]] cudaError_t find_transfer_kernel();

}  // namespace kolo::internal::backend::gpu
