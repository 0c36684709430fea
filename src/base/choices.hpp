// What carries data: the choices that a user makes by settings, and that backends follow.
#pragma once

#include <cstdint>

namespace kolo::internal {

/// What carries data between CPUs of one host.
enum class CpuOperations : std::uint8_t { automatic, shm, mpi };

/// How allreduces go from host to host.
enum class HostAllreduce : std::uint8_t { automatic, direct, ring, doubling };

/// What carries tensors on GPUs.
enum class GpuOperations : std::uint8_t { automatic, nccl, staged };

}  // namespace kolo::internal
