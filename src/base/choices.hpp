// SPDX-License-Identifier: Apache-2.0
// The transports for data that a user chooses by settings.
#pragma once

#include <cstdint>

namespace kolo::internal {

/// The transport of data between CPUs of one host.
enum class CpuOperations : std::uint8_t { automatic, shm, mpi, last = mpi };

/// What carries data between hosts.
enum class Network : std::uint8_t { automatic, fabric, mpi, last = mpi };

/// The transport of tensors on GPUs.
enum class GpuOperations : std::uint8_t { automatic, nccl, staged, last = staged };

}  // namespace kolo::internal
