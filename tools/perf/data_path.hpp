// Which way Kolo's data takes.
#pragma once

#include <string>

#include "workload.hpp"

namespace perf {

/// `shm`, `mpi` or `shm+mpi`; of allreduces in shared memory whether they are `shm-staged` there or
/// read where they lie, `shm-zero-copy`.
[[nodiscard]] std::string data_path(const Case& row);

}  // namespace perf
