// SPDX-License-Identifier: Apache-2.0
#include "workload.hpp"

namespace perf {
namespace {

void plan_gradients(const Options& options, kolo::DType dtype, std::vector<Case>& rows) {
  for (const std::string& set : options.gradients)
    for (const Memory memory : options.memories)
      for (const Peer peer : options.peers)
        rows.push_back({.dtype = dtype,
                        .reduce_op = options.reduce_op,
                        .gradients = set,
                        .peer = peer,
                        .memory = memory});
}

void plan_operation(const Options& options, Operation operation, std::vector<Case>& rows) {
  if (operation == Operation::barrier) {
    rows.push_back({.operation = operation});
    return;
  }
  const std::vector<Memory> memories =
      operation == Operation::allreduce ? options.memories : std::vector{Memory::own};
  for (const kolo::DType dtype : options.dtypes)
    for (const Memory memory : memories)
      for (const std::int64_t bytes : options.sizes)
        rows.push_back({.operation = operation,
                        .bytes = bytes,
                        .dtype = dtype,
                        .reduce_op = options.reduce_op,
                        .memory = memory});
}

}  // namespace

std::unique_ptr<Workload> make_workload(const Case& row, const World& world) {
  if (!row.gradients.empty())
    return make_gradient_workload(find_gradients(row.gradients, row.dtype), row, world);
  return make_collective_workload(row, world);
}

std::vector<Case> plan_rows(const Options& options) {
  std::vector<Case> rows;
  if (options.mode == Mode::idle) return rows;
  if (options.gradients.empty()) {
    for (const Operation operation : options.operations) plan_operation(options, operation, rows);
  } else {
    for (const kolo::DType dtype : options.dtypes) plan_gradients(options, dtype, rows);
  }
  return rows;
}

}  // namespace perf
