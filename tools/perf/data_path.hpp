// SPDX-License-Identifier: Apache-2.0
// Which way Kolo's data takes.
#pragma once

#include <string>

#include "workload.hpp"

namespace perf {

/// `cuda` for tensors on GPUs; docs/gpu.md says how to find out more. Else `shm`, `mpi` or
/// `shm+mpi`; of allreduces in shared memory whether they are copied there, `shm-staged`, or read
/// where they lie there, `shm-zero-copy`.
[[nodiscard]] std::string data_path(const Case& row);

}  // namespace perf
