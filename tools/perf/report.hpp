// What rank 0 prints.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "environment.hpp"
#include "measure.hpp"
#include "workload.hpp"

namespace perf {

/// A row that was measured.
struct Row {
  Case what{};
  std::int64_t bytes = 0;
  std::int64_t elements = 0;
  std::int64_t tensors = 0;
  std::string path{};
  int ranks = 1;
  Measurement measured{};
};

/// The median of MPI's latency over that of Kolo's: above 1, Kolo is faster.
[[nodiscard]] std::optional<double> ratio_of(const Row& row);

/// The algorithm bandwidth of a latency's median, in GB/s; none where no bytes move.
[[nodiscard]] std::optional<double> algorithm_bandwidth(const Row& row, const Latency& latency);
[[nodiscard]] std::optional<double> bus_bandwidth(const Row& row, const Latency& latency);

/// The set of gradients with its peer, or the operation.
[[nodiscard]] std::string label_of(const Case& row);
/// Only where elements are combined.
[[nodiscard]] std::string reduce_op_of(const Case& row);

class Report {
 public:
  virtual ~Report() = default;

  virtual void begin(const Environment& environment) = 0;
  virtual void add(const Row& row) = 0;
  /// Instead of rows, in mode idle.
  virtual void add_idle(int rank, double seconds, double cpu_percent) = 0;
  virtual void end() = 0;
};

/// To standard output.
[[nodiscard]] std::unique_ptr<Report> make_report(Format format);

// One file each.
[[nodiscard]] std::unique_ptr<Report> make_table_report();
[[nodiscard]] std::unique_ptr<Report> make_csv_report();
[[nodiscard]] std::unique_ptr<Report> make_json_report();

}  // namespace perf
