// SPDX-License-Identifier: Apache-2.0
#include "data_path.hpp"

#include <kolo/session.hpp>

namespace perf {

std::string data_path(const Case& row) {
  if (row.gpu) return "cuda";
  std::string path = kolo::cpu_operations();
  if (path != "shm" || row.operation != Operation::allreduce) return path;
  return path + (row.memory == Memory::shared ? "-zero-copy" : "-staged");
}

}  // namespace perf
