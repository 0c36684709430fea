// SPDX-License-Identifier: Apache-2.0
// The interface between the code that nvcc compiles and the rest.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/gpu/runtime/transfer.hpp"

namespace kolo::internal::backend::gpu {

/// Launches the kernel on the current device. There is at least one tile.
[[nodiscard]] cudaError_t launch_transfer(const TransferTable& table, cudaStream_t stream);

/// Returns an error if the current device cannot run the kernel.
[[nodiscard]] cudaError_t find_transfer_kernel();

}  // namespace kolo::internal::backend::gpu
