// Workloads of one operation on one tensor.
#pragma once

#include <memory>

#include "workload.hpp"

namespace perf {

[[nodiscard]] std::unique_ptr<Workload> make_collective_workload(const Case& row,
                                                                 const World& world);

}  // namespace perf
