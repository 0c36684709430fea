// SPDX-License-Identifier: Apache-2.0
// Flight records as kolo-diagnose reads them, and its diagnosis of each.
#include "diagnostics/recorder.hpp"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>

#include "memory_file.hpp"
#include "record.hpp"
#include "report.hpp"
#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

void require_diagnosis(const diagnose::Record& record) {
  if (record.size > 1000) return;  // the diagnosis lists each missing rank
  const std::vector<diagnose::Record> records{record};
  const diagnose::Diagnosis diagnosis = diagnose::analyze(records);
  require(!diagnose::to_text(diagnosis, records, {}).empty(), "a diagnosis without words");
  const auto json = nlohmann::json::parse(diagnose::to_json(diagnosis, records, {}));
  require(json.at("records").size() == 1, "a record that is not in the diagnosis");
}

bool run(Bytes bytes) {
  static MemoryFile file;
  file.set(bytes);
  diagnose::Record record;
  try {
    record = diagnose::read_record(file.path());
  } catch (const diagnose::ReadError&) {
    return false;
  }
  require(record.rank >= 0 && record.rank < record.size, "a rank outside the world");
  for (const diagnose::Key& key : record.order)
    require(record.operations.contains(key), "an operation in the order that is not known");
  require_diagnosis(record);
  return true;
}

/// A record as the library writes it, with one operation in every state.
std::string sample(bool pending) {
  diagnostics::Recorder recorder({.flight_recorder = 16}, {.session = 7, .rank = 1, .size = 3});
  Descriptor descriptor;
  descriptor.type = OperationType::allreduce;
  descriptor.tensors = {{DType::f32, Shape{4}}};
  const auto now = diagnostics::Clock::now();
  const auto submit = [&](const std::string& name, std::int64_t set) {
    return recorder.submitted(
        {.name = name, .number = 0, .set = set, .bytes = 16, .descriptor = descriptor}, now);
  };
  recorder.finished(submit("done", 0), 0, {now, now});
  std::vector<diagnostics::PendingOperation> waiting;
  if (pending) {
    waiting.push_back({submit("waits", 0), &descriptor});
    waiting.push_back({submit("runs", 2), &descriptor, true, 1});
    waiting.push_back({submit("", 0), &descriptor});
  }
  const auto path = std::filesystem::temp_directory_path() /
                    diagnostics::flight_record_name(static_cast<std::uint64_t>(::getpid()), 0);
  recorder.write(path, "a \"test\"", waiting);
  std::ifstream written(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(written), {}};
  std::filesystem::remove(path);
  // The same bytes in every run, so that an input that fails fails again.
  const std::regex changing(R"re("(process|ns|wall_ns)":[0-9]+)re");
  bytes = std::regex_replace(bytes, changing, R"("$1":1000)");
  return std::regex_replace(bytes, std::regex(R"("host":"[^"]*")"), R"("host":"node")");
}

std::vector<Seed> seeds() {
  const std::string header =
      R"({"kolo_flight_record":1,"session":"7","rank":0,"size":1,"host":"h","process":1,)"
      R"("reason":"r","ns":5,"wall_ns":9,"submitted":0,"finished":0,"failed":0,"events":0})";
  return {
      {"least", header + "\n{\"lines\":1}\n"},
      {"note", header + "\n{\"note\":\"peer left\",\"ns\":4,\"text\":\"rank 1\"}\n{\"lines\":2}\n"},
      {"done", sample(false)},
      {"pending", sample(true)}};
}

}  // namespace

const Target flight_record_target{
    .name = "flight_record", .max_bytes = 4096, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
