// SPDX-License-Identifier: Apache-2.0
// The path that Kolo's data takes.
#pragma once

#include <string>

#include "workload.hpp"

namespace perf {

/// `cuda` for tensors on GPUs; docs/gpu.md explains how to find out more. Otherwise `shm`, `mpi` or
/// `shm+mpi`. For an allreduce in shared memory, `shm-staged` if the tensors are copied into shared
/// memory, and `shm-zero-copy` if they are already there.
[[nodiscard]] std::string data_path(const Case& row);

}  // namespace perf
