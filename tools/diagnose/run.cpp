// SPDX-License-Identifier: Apache-2.0
#include "run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "record.hpp"

namespace diagnose {
namespace {

using Json = nlohmann::json;

/// Sums and differences of such times fit into 64 bits.
constexpr double max_microseconds = 3e15;

/// Reads a timeline line by line, because Kolo writes each event in a line of its own, and a long
/// timeline would not fit into memory as a whole.
class TimelineReader {
 public:
  explicit TimelineReader(const std::string& path) { run_.file = path; }

  RankRun read(std::ifstream& file) {
    std::string line;
    while (std::getline(file, line)) {
      ++line_;
      while (!line.empty() && (line.back() == ',' || line.back() == '\r')) line.pop_back();
      if (line.empty() || line == "[" || line == "]") continue;
      if (line.front() != '{') refuse("is no event of a timeline");
      try {
        // Most events are phases of batches, which say nothing here.
        if (line.find(R"("cat":"phase")") == std::string::npos) take(Json::parse(line));
      } catch (const Json::exception& error) {
        refuse(error.what());
      }
    }
    if (!has_rank_) throw ReadError(run_.file + ": is no timeline of Kolo's: it has no rank");
    return std::move(run_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw ReadError(fmt::format("{}: line {}: {}", run_.file, line_, why));
  }

  [[nodiscard]] std::int64_t nanoseconds(const Json& event, const char* name) const {
    const double microseconds = event.at(name).get<double>();
    if (!(std::abs(microseconds) <= max_microseconds))
      refuse(fmt::format("{} is {}", name, microseconds));
    return std::llround(microseconds * 1e3);
  }

  void take(const Json& event) {
    const std::string phase = event.at("ph").get<std::string>();
    const Json arguments = event.value("args", Json::object());
    if (phase == "M") {
      if (event.at("name") == "process_name") take_rank(event.at("pid").get<int>());
    } else if (phase == "i" && arguments.contains("dropped")) {
      run_.dropped = std::max(run_.dropped, arguments.at("dropped").get<std::int64_t>());
    } else if (phase == "X" && event.value("cat", "") == "operation") {
      take_operation(event, arguments);
    }
  }

  void take_rank(int rank) {
    if (rank < 0 || (has_rank_ && rank != run_.rank)) refuse(fmt::format("rank {}", rank));
    run_.rank = rank;
    has_rank_ = true;
  }

  /// An executed operation has two events: the first until all ranks have submitted it, and one for
  /// the execution right after it.
  void take_operation(const Json& event, const Json& arguments) {
    const std::int64_t begin = nanoseconds(event, "ts");
    const std::int64_t end = begin + std::max<std::int64_t>(0, nanoseconds(event, "dur"));
    if (event.at("name") != "NEGOTIATE") {
      if (run_.operations.empty()) refuse("an operation that was executed before its submission");
      run_.operations.back().end = std::max(end, run_.operations.back().agreed);
      return;
    }
    run_.operations.push_back({.name = arguments.at("name").get<std::string>(),
                               .set = arguments.value("set", std::int64_t{0}),
                               .batch = arguments.value("batch", std::int64_t{-1}),
                               .is_open = arguments.value("failed", false),
                               .begin = begin,
                               .agreed = end,
                               .end = end});
  }

  RankRun run_{};
  bool has_rank_ = false;
  std::uint64_t line_ = 0;
};

/// What a flight record tells of the same.
RankRun run_of(const Record& record) {
  RankRun run{.file = record.file, .rank = record.rank, .host = record.host};
  for (const auto& [key, operation] : record.operations) {
    if (operation.submitted_ns == 0) continue;  // the record has lost its submission
    const bool is_pending =
        operation.state == State::negotiating || operation.state == State::executing;
    const std::int64_t end =
        std::max(operation.submitted_ns, is_pending ? record.ns : operation.ended_ns);
    const auto started = record.started.find(operation.batch);
    const std::int64_t agreed = started == record.started.end() ? end : started->second;
    run.operations.push_back({.name = key.name.empty() ? to_string(key) : key.name,
                              .set = key.set,
                              .batch = operation.batch,
                              .is_open = operation.state != State::finished,
                              .begin = operation.submitted_ns,
                              .agreed = std::clamp(agreed, operation.submitted_ns, end),
                              .end = end});
  }
  return run;
}

}  // namespace

RankRun read_run(const std::string& path) {
  if (std::filesystem::is_directory(path)) throw ReadError(path + ": is a directory");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ReadError(path + ": cannot be opened");
  RankRun run = file.peek() == '[' ? TimelineReader(path).read(file) : run_of(read_record(path));
  std::ranges::stable_sort(run.operations, {}, &RunOperation::begin);
  return run;
}

}  // namespace diagnose
