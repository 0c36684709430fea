// SPDX-License-Identifier: Apache-2.0
// {"environment": {...}, "rows": [...]}, printed at the end. docs/performance.md lists the fields.
#include <iostream>
#include <nlohmann/json.hpp>

#include "elements.hpp"
#include "report.hpp"

namespace perf {
namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

void add_side(Json& json, const std::string& side, const Row& row,
              const std::optional<SideResult>& result) {
  const auto latency = [&](double Latency::*field) {
    return result ? Json(result->latency.*field) : Json(nullptr);
  };
  json[side + "_us"] = latency(&Latency::median);
  json[side + "_p90_us"] = latency(&Latency::p90);
  json[side + "_max_us"] = latency(&Latency::max);
  json[side + "_algbw_gbs"] =
      result ? or_null(algorithm_bandwidth(row, result->latency)) : Json(nullptr);
  json[side + "_busbw_gbs"] = result ? or_null(bus_bandwidth(row, result->latency)) : Json(nullptr);
  json[side + "_wrong"] = result ? Json(result->wrong) : Json(nullptr);
}

class JsonReport : public Report {
 public:
  void begin(const Environment& environment) override {
    json_["environment"] = {{"ranks", environment.ranks},
                            {"nodes", environment.nodes},
                            {"cores", environment.cores},
                            {"kolo_version", environment.kolo_version},
                            {"mpi_library", environment.mpi_library},
                            {"mode", environment.mode},
                            {"warmup", environment.warmup},
                            {"iterations", environment.iterations},
                            {"variables", environment.variables}};
    json_["rows"] = Json::array();
  }

  void add(const Row& row) override {
    const Case& what = row.what;
    Json json;
    json["operation"] = find_name(operation_names, what.operation);
    json["gradients"] = what.gradients.empty() ? Json(nullptr) : Json(what.gradients);
    json["peer"] = what.peer ? Json(find_name(peer_names, *what.peer)) : Json(nullptr);
    json["bytes"] = row.bytes;
    json["elements"] = row.elements;
    json["tensors"] = row.tensors;
    json["dtype"] = find_name(dtype_names, what.dtype);
    const std::string op = reduce_op_of(what);
    json["reduce_op"] = op.empty() ? Json(nullptr) : Json(op);
    json["path"] = row.path;
    json["wrong"] = row.measured.kolo.wrong;
    add_side(json, "kolo", row, row.measured.kolo);
    add_side(json, "mpi", row, row.measured.mpi);
    json["ratio"] = or_null(ratio_of(row));
    json_["rows"].push_back(std::move(json));
  }

  void add_idle(int rank, double seconds, double cpu_percent) override {
    json_["rows"].push_back({{"rank", rank}, {"seconds", seconds}, {"cpu_percent", cpu_percent}});
  }

  void end() override {
    std::cout << json_.dump(2, ' ', false, Json::error_handler_t::replace) << std::endl;
  }

 private:
  Json json_ = Json::object();
};

}  // namespace

std::unique_ptr<Report> make_json_report() { return std::make_unique<JsonReport>(); }

}  // namespace perf
