#include "data_path.hpp"

#include <kolo/session.hpp>

namespace perf {

std::string data_path(const Case& row, std::int64_t bytes) {
  if (row.gpu) return "cuda";
  std::string path = kolo::cpu_operations();
  if (path != "shm" || row.operation != Operation::allreduce) return path;
  if (row.memory == Memory::shared) return path + "-zero-copy";
  const std::int64_t from = kolo::single_copy_from();
  return path + (from > 0 && bytes >= from ? "-cma" : "-staged");
}

}  // namespace perf
