// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <kolo/session.hpp>
#include <string_view>

#include "elements.hpp"
#include "statistics.hpp"

namespace perf {
namespace {

/// False for variables that launchers set for their processes: they say nothing about the run, and
/// one of them is the secret of the job.
bool is_told(std::string_view name) {
  constexpr std::array<std::string_view, 6> internal{
      "OMPI_MCA_ess",           "OMPI_MCA_orte",         "OMPI_MCA_pmix",
      "OMPI_MCA_shmem_RUNTIME", "OMPI_MCA_initial_wdir", "KOLO_RENDEZVOUS"};
  for (const std::string_view prefix : internal)
    if (name.starts_with(prefix)) return false;
  constexpr std::array<std::string_view, 6> told{"OMPI_MCA_", "MPIR_CVAR_", "UCX_",
                                                 "FI_",       "KOLO_",      "HOROVOD_"};
  return std::ranges::any_of(told,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
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

/// The number of cores to which mpirun has bound this process.
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

std::optional<double> ratio_of(const Row& row) {
  if (!row.measured.mpi || row.measured.kolo.latency.median <= 0.0) return std::nullopt;
  return row.measured.mpi->latency.median / row.measured.kolo.latency.median;
}

std::optional<double> algorithm_bandwidth(const Row& row, const Latency& latency) {
  if (row.bytes == 0) return std::nullopt;
  return algorithm_bandwidth(row.bytes, latency.median);
}

std::optional<double> bus_bandwidth(const Row& row, const Latency& latency) {
  const auto bandwidth = algorithm_bandwidth(row, latency);
  const auto factor = bus_factor(row.what.operation, row.ranks);
  if (!bandwidth || !factor) return std::nullopt;
  return *bandwidth * *factor;
}

std::string label_of(const Case& row) {
  if (row.gradients.empty()) return std::string(find_name(operation_names, row.operation));
  return row.gradients + "/" + std::string(find_name(peer_names, row.peer.value_or(Peer::flat)));
}

std::string reduce_op_of(const Case& row) {
  const bool combined =
      row.operation == Operation::allreduce || row.operation == Operation::reducescatter;
  return combined ? std::string(find_name(reduce_op_names, row.reduce_op)) : "";
}

std::unique_ptr<Report> make_report(Format format) {
  switch (format) {
    case Format::csv: return make_csv_report();
    case Format::json: return make_json_report();
    case Format::table: break;
  }
  return make_table_report();
}

}  // namespace perf
