#include "report.hpp"

#include "elements.hpp"
#include "statistics.hpp"

namespace perf {

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
