#include "environment.hpp"

#include <sched.h>
#include <unistd.h>

#include <array>
#include <kolo/session.hpp>
#include <string_view>

namespace perf {
namespace {

/// mpirun sets some of its own, for its daemons; they say nothing about the run.
bool is_told(std::string_view name) {
  constexpr std::array<std::string_view, 5> internal{"OMPI_MCA_ess", "OMPI_MCA_orte",
                                                     "OMPI_MCA_pmix", "OMPI_MCA_shmem_RUNTIME",
                                                     "OMPI_MCA_initial_wdir"};
  for (const std::string_view prefix : internal)
    if (name.starts_with(prefix)) return false;
  return name.starts_with("OMPI_MCA_") || name.starts_with("KOLO_") || name.starts_with("HOROVOD_");
}

std::map<std::string, std::string> find_variables() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos && is_told(text.substr(0, equals)))
      variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

/// That this process may run on, as mpirun has bound it.
int count_cores() {
  cpu_set_t cores{};
  return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 0;
}

}  // namespace

Environment describe_environment(const Options& options, const World& world) {
  const kolo::BuildInfo info = kolo::build_info();
  return {.ranks = world.size(),
          .nodes = world.nodes(),
          .cores = count_cores(),
          .kolo_version = info.version,
          .mpi_library = info.mpi_library,
          .mode = std::string(find_name(mode_names, options.mode)),
          .warmup = options.warmup,
          .iterations = options.iterations,
          .variables = find_variables()};
}

}  // namespace perf
