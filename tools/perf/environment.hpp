// Under which conditions a report was made.
#pragma once

#include <map>
#include <string>

#include "options.hpp"
#include "world.hpp"

namespace perf {

struct Environment {
  int ranks = 1;
  int nodes = 1;
  int cores = 0;  ///< That rank 0 may use; 0 if unknown.
  std::string kolo_version;
  std::string mpi_library;
  std::string mode;
  int warmup = 0;
  int iterations = 0;
  std::map<std::string, std::string> variables;  ///< OMPI_MCA_*, KOLO_* and HOROVOD_* that are set.
};

[[nodiscard]] Environment describe_environment(const Options& options, const World& world);

}  // namespace perf
