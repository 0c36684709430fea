// The workload of a training step: every gradient by its name, the last layer's first.
#pragma once

#include <memory>

#include "gradient_sets.hpp"
#include "workload.hpp"

namespace perf {

[[nodiscard]] std::unique_ptr<Workload> make_gradient_workload(Gradients gradients, const Case& row,
                                                               const World& world);

}  // namespace perf
