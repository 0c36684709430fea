// SPDX-License-Identifier: Apache-2.0
// A table for people: a header with the environment, then each row as soon as it is measured.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "elements.hpp"
#include "report.hpp"

namespace perf {
namespace {

/// Formats a duration with about four significant digits.
std::string microseconds(double value) {
  return value < 100.0 ? fmt::format("{:.2f}", value) : fmt::format("{:.1f}", value);
}

std::string number(const std::optional<double>& value) {
  return value ? fmt::format("{:.2f}", *value) : "-";
}

std::string times(const std::optional<Latency>& latency) {
  if (!latency) return fmt::format("{:>11} {:>11} {:>11}", "-", "-", "-");
  return fmt::format("{:>11} {:>11} {:>11}", microseconds(latency->median),
                     microseconds(latency->p90), microseconds(latency->max));
}

/// The name of the MPI library without build details: Open MPI appends them after a comma, MPICH on
/// further lines.
std::string short_name(const std::string& mpi_library) {
  std::string name = mpi_library.substr(0, mpi_library.find_first_of(",\n"));
  std::ranges::replace(name, '\t', ' ');
  return name;
}

class TableReport : public Report {
 public:
  void begin(const Environment& environment) override {
    const auto plural = [](int count) { return count == 1 ? "" : "s"; };
    fmt::print("# kolo-perf: {} rank{} on {} node{}, rank 0 on {} core{}, mode {}\n",
               environment.ranks, plural(environment.ranks), environment.nodes,
               plural(environment.nodes), environment.cores, plural(environment.cores),
               environment.mode);
    fmt::print("# Kolo {}; {}\n", environment.kolo_version, short_name(environment.mpi_library));
    for (const auto& [name, value] : environment.variables) fmt::print("# {}={}\n", name, value);
    if (environment.mode == "idle") {
      fmt::print("#\n# rank  % of a core\n");
      return;
    }
    fmt::print("# {} iterations after {} to warm up; times in us; bandwidths in GB/s, of Kolo\n",
               environment.iterations, environment.warmup);
    fmt::print("# ratio: MPI's median over Kolo's, above 1 Kolo is faster\n#\n");
    fmt::print(
        "# {:<18} {:>11} {:>5} {:>7} {:>13} {:>11} {:>11} {:>11} {:>7} {:>7} {:>7} {:>11} "
        "{:>11} {:>11} {:>7}\n",
        "operation", "bytes", "dtype", "op", "path", "kolo median", "kolo p90", "kolo max", "algbw",
        "busbw", "#wrong", "MPI median", "MPI p90", "MPI max", "ratio");
    std::fflush(stdout);
  }

  void add(const Row& row) override {
    const Latency& kolo = row.measured.kolo.latency;
    std::optional<Latency> mpi;
    if (row.measured.mpi) mpi = row.measured.mpi->latency;
    const std::string op = reduce_op_of(row.what);
    fmt::print("  {:<18} {:>11} {:>5} {:>7} {:>13} {} {:>7} {:>7} {:>7} {} {:>7}\n",
               label_of(row.what), row.bytes,
               row.bytes == 0 ? "-" : find_name(dtype_names, row.what.dtype), op.empty() ? "-" : op,
               row.path, times(kolo), number(algorithm_bandwidth(row, kolo)),
               number(bus_bandwidth(row, kolo)), row.measured.kolo.wrong, times(mpi),
               number(ratio_of(row)));
    std::fflush(stdout);
  }

  void add_idle(int rank, double /*seconds*/, double cpu_percent) override {
    fmt::print("  {:>4}  {:>11.2f}\n", rank, cpu_percent);
  }

  void end() override {}
};

}  // namespace

std::unique_ptr<Report> make_table_report() { return std::make_unique<TableReport>(); }

}  // namespace perf
