// Which way Kolo's data takes.
#pragma once

#include <cstdint>
#include <string>

#include "workload.hpp"

namespace perf {

/// `cuda` for tensors on GPUs; docs/gpu.md says how to find out more. Else `shm`, `mpi` or
/// `shm+mpi`; of allreduces in shared memory whether they are `shm-staged` there, read where they
/// lie there, `shm-zero-copy`, or in the other ranks' private memory, `shm-cma`. `bytes` are the
/// row's.
[[nodiscard]] std::string data_path(const Case& row, std::int64_t bytes);

}  // namespace perf
