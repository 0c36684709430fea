// SPDX-License-Identifier: Apache-2.0
// Reads a report of `kolo-perf --json` and prints the errors in it.
// Usage: check_perf_report RANKS ROWS [idle] < report
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

using Json = nlohmann::json;

void require(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what);
}

bool close(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b); }

void check_environment(const Json& environment, int ranks) {
  require(environment.at("ranks") == ranks, "the number of ranks is not " + std::to_string(ranks));
  require(environment.at("nodes") == 1, "the ranks are not on one node");
  for (const char* text : {"kolo_version", "mpi_library", "mode"})
    require(!environment.at(text).get<std::string>().empty(), std::string(text) + " is empty");
  require(environment.at("variables").is_object(), "variables is not an object");
  require(environment.at("variables").contains("KOLO_LOG_LEVEL"), "KOLO_LOG_LEVEL is missing");
  require(!environment.at("variables").contains("KOLO_RENDEZVOUS_SECRET"), "the secret is told");
}

void check_side(const Json& row, const std::string& side) {
  const double median = row.at(side + "_us");
  require(median > 0.0, side + "_us is not above 0");
  require(median <= row.at(side + "_p90_us"), side + ": the median is above p90");
  require(row.at(side + "_p90_us") <= row.at(side + "_max_us"), side + ": p90 is above max");
  require(row.at(side + "_wrong") == 0, side + " has wrong elements");
  const std::int64_t bytes = row.at("bytes");
  if (bytes > 0)
    require(close(row.at(side + "_algbw_gbs"), static_cast<double>(bytes) / median / 1e3),
            side + "_algbw_gbs is not bytes over the median");
  else
    require(row.at(side + "_algbw_gbs").is_null(), side + "_algbw_gbs without bytes");
}

void check_row(const Json& row) {
  for (const char* text : {"operation", "dtype", "path"})
    require(!row.at(text).get<std::string>().empty(), std::string(text) + " is empty");
  for (const char* field : {"gradients", "peer", "reduce_op", "elements", "tensors"})
    require(row.contains(field), std::string(field) + " is missing");
  require(row.at("wrong") == 0, "wrong elements");
  check_side(row, "kolo");
  if (row.at("path") == "cuda") return require(row.at("ratio").is_null(), "MPI has GPU tensors");
  const std::string dtype = row.at("dtype");
  const bool half = dtype == "f16" || dtype == "bf16";
  if (half && !row.at("reduce_op").is_null()) {
    require(row.at("mpi_us").is_null() && row.at("ratio").is_null(), "MPI cannot reduce " + dtype);
    return;
  }
  check_side(row, "mpi");
  require(close(row.at("ratio"), row.at("mpi_us").get<double>() / row.at("kolo_us").get<double>()),
          "ratio is not mpi_us / kolo_us");
}

void check_idle(const Json& row, int rank) {
  require(row.at("rank") == rank, "the ranks are not in order");
  require(row.at("seconds") > 0.0, "seconds is not above 0");
  const double percent = row.at("cpu_percent");
  require(percent >= 0.0 && percent < 50.0, "an idle rank used " + std::to_string(percent) + " %");
}

void check(const Json& report, int ranks, std::size_t rows, bool idle) {
  check_environment(report.at("environment"), ranks);
  require(report.at("rows").size() == rows, "the number of rows is not " + std::to_string(rows));
  for (std::size_t i = 0; i < rows; ++i) {
    const Json& row = report.at("rows").at(i);
    try {
      if (idle)
        check_idle(row, static_cast<int>(i));
      else
        check_row(row);
    } catch (const std::exception& error) {
      throw std::runtime_error("row " + std::to_string(i) + ": " + error.what());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  try {
    require(argc >= 3, "usage: check_perf_report RANKS ROWS [idle] < report");
    const bool idle = argc > 3 && std::string_view(argv[3]) == "idle";
    check(Json::parse(text), std::atoi(argv[1]), static_cast<std::size_t>(std::atoi(argv[2])),
          idle);
  } catch (const std::exception& error) {
    std::printf("%s\ncheck_perf_report: %s\n", text.c_str(), error.what());
    return 1;
  }
  std::printf("as it must be\n");
}
