// SPDX-License-Identifier: Apache-2.0
// The report that rank 0 prints.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "measure.hpp"
#include "workload.hpp"

namespace perf {

/// The conditions under which a report was made.
struct Environment {
  int ranks = 1;
  int nodes = 1;
  int cores = 0;  ///< Cores available to rank 0; 0 if unknown.
  std::string kolo_version;
  std::string mpi_library;
  std::string mode;
  int warmup = 0;
  int iterations = 0;
  std::map<std::string, std::string> variables;  ///< Variables of MPI, UCX, OFI and Kolo.
};

[[nodiscard]] Environment describe_environment(const Options& options, const World& world);

/// A measured row.
struct Row {
  Case what{};
  std::int64_t bytes = 0;
  std::int64_t elements = 0;
  std::int64_t tensors = 0;
  std::string path{};
  int ranks = 1;
  Measurement measured{};
};

/// MPI's median latency divided by Kolo's: above 1, Kolo is faster.
[[nodiscard]] std::optional<double> ratio_of(const Row& row);

/// Algorithm bandwidth at the median latency, in GB/s; none for a row without bytes.
[[nodiscard]] std::optional<double> algorithm_bandwidth(const Row& row, const Latency& latency);
[[nodiscard]] std::optional<double> bus_bandwidth(const Row& row, const Latency& latency);

/// The set of gradients and its peer, or the operation.
[[nodiscard]] std::string label_of(const Case& row);
/// The operator; empty for operations that do not reduce.
[[nodiscard]] std::string reduce_op_of(const Case& row);

class Report {
 public:
  virtual ~Report() = default;

  virtual void begin(const Environment& environment) = 0;
  virtual void add(const Row& row) = 0;
  /// Adds the result of mode idle, which has no rows.
  virtual void add_idle(int rank, double seconds, double cpu_percent) = 0;
  virtual void end() = 0;
};

/// A report that writes to standard output.
[[nodiscard]] std::unique_ptr<Report> make_report(Format format);

// The formats, each in its own file.
[[nodiscard]] std::unique_ptr<Report> make_table_report();
[[nodiscard]] std::unique_ptr<Report> make_csv_report();
[[nodiscard]] std::unique_ptr<Report> make_json_report();

}  // namespace perf
