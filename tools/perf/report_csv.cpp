// SPDX-License-Identifier: Apache-2.0
// Comma-separated values with a header line. Missing values are empty.
#include <fmt/format.h>

#include <cstdio>

#include "elements.hpp"
#include "report.hpp"

namespace perf {
namespace {

/// Quotes a field where RFC 4180 requires it.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text) result += c == '"' ? std::string("\"\"") : std::string(1, c);
  return result + "\"";
}

std::string in_csv(const std::optional<double>& value) {
  return value ? fmt::format("{:.6g}", *value) : "";
}

std::string side_columns(const Row& row, const std::optional<SideResult>& result) {
  if (!result) return ",,,,,";
  return fmt::format("{:.3f},{:.3f},{:.3f},{},{},{}", result->latency.median, result->latency.p90,
                     result->latency.max, in_csv(algorithm_bandwidth(row, result->latency)),
                     in_csv(bus_bandwidth(row, result->latency)), result->wrong);
}

class CsvReport : public Report {
 public:
  void begin(const Environment& environment) override {
    mode_ = environment.mode;
    ranks_ = environment.ranks;
    nodes_ = environment.nodes;
    if (mode_ == "idle") {
      fmt::print("mode,ranks,nodes,rank,seconds,cpu_percent\n");
      return;
    }
    fmt::print(
        "mode,ranks,nodes,operation,gradients,peer,bytes,elements,tensors,dtype,reduce_op,path,"
        "kolo_us,kolo_p90_us,kolo_max_us,kolo_algbw_gbs,kolo_busbw_gbs,kolo_wrong,"
        "mpi_us,mpi_p90_us,mpi_max_us,mpi_algbw_gbs,mpi_busbw_gbs,mpi_wrong,ratio\n");
  }

  void add(const Row& row) override {
    const Case& what = row.what;
    fmt::print("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", mode_, ranks_, nodes_,
               find_name(operation_names, what.operation), quoted(what.gradients),
               what.peer ? find_name(peer_names, *what.peer) : "", row.bytes, row.elements,
               row.tensors, find_name(dtype_names, what.dtype), reduce_op_of(what), row.path,
               side_columns(row, row.measured.kolo), side_columns(row, row.measured.mpi),
               in_csv(ratio_of(row)));
    std::fflush(stdout);
  }

  void add_idle(int rank, double seconds, double cpu_percent) override {
    fmt::print("{},{},{},{},{},{:.3f}\n", mode_, ranks_, nodes_, rank, seconds, cpu_percent);
  }

  void end() override {}

 private:
  std::string mode_;
  int ranks_ = 1;
  int nodes_ = 1;
};

}  // namespace

std::unique_ptr<Report> make_csv_report() { return std::make_unique<CsvReport>(); }

}  // namespace perf
