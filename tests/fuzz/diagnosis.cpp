// SPDX-License-Identifier: Apache-2.0
// The diagnosis of the records of several ranks, whatever they contain.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "report.hpp"
#include "target.hpp"

namespace kolo::internal::fuzz {
namespace {

using diagnose::Finding;
using diagnose::Key;
using diagnose::Operation;
using diagnose::Record;

constexpr std::array<const char*, 6> names{"a", "b", "", "(join)", "\"\xFF", "a.long/name"};
constexpr std::array<const char*, 4> types{"allreduce", "allgather", "broadcast", "join"};
constexpr std::array<const char*, 4> kinds{"failed", "plan begun", "stall", ""};
constexpr std::int64_t max_ns = 3'000'000'000'000'000'000;  // a time that a record may contain

template <typename Things>
auto one_of(const Things& things, std::size_t choice) {
  return things[choice % things.size()];
}

std::int64_t time_of(std::size_t choice) {
  return choice == 255 ? max_ns : static_cast<std::int64_t>(choice) * 100'000'000;
}

Key key_of(Choices& choices) {
  const std::size_t choice = choices.next();
  return {.round = choice / 128,
          .set = static_cast<std::int64_t>(choice / 64 % 2),
          .name = one_of(names, choice % 64),
          .count = choice / 16 % 4};
}

void add_operation(Record& record, Choices& choices) {
  const Key key = key_of(choices);
  const std::size_t what = choices.next();
  const auto [found, is_new] = record.operations.try_emplace(key);
  Operation& operation = found->second;
  operation.state = static_cast<diagnose::State>(what % 4);
  operation.type = one_of(types, what / 4);
  operation.dtype = what / 16 % 4 == 0 ? "" : what / 16 % 4 == 1 ? "f16" : "f32";
  operation.bytes = static_cast<std::int64_t>(what / 64);
  operation.submitted_ns = time_of(choices.next());
  operation.batch = what % 4 == 0 ? -1 : static_cast<std::int64_t>(what / 128);
  if (what % 4 < 2) operation.details = operation.type;
  auto& known = record.names[{key.set, key.name}];
  known = {key.round, std::max(known.submitted, key.count + 1)};
  if (is_new && what / 8 % 4 != 0) record.order.push_back(key);
}

/// One command per byte.
std::vector<Record> records_of(Choices& choices) {
  const auto size = static_cast<int>(1 + choices.next() % 6);
  std::vector<Record> records;
  for (int rank = 0; rank < size; ++rank) {
    if (rank > 0 && choices.next() % 8 == 0) continue;
    Record& record = records.emplace_back();
    record.rank = rank;
    record.size = size;
    record.ns = time_of(choices.next());
    record.wall_ns = time_of(choices.next());
  }
  constexpr int max_commands = 64;
  for (int commands = 0; !choices.done() && commands < max_commands; ++commands) {
    const std::size_t command = choices.next();
    Record& record = records[command / 4 % records.size()];
    switch (command % 4) {
      case 0:
        record.notes.push_back(
            {one_of(kinds, command / 32), 0, one_of(names, choices.next() % 64)});
        break;
      case 1: record.last_ns = time_of(choices.next()); break;
      default: add_operation(record, choices);
    }
  }
  return records;
}

bool within(const std::vector<int>& ranks, int size) {
  return std::ranges::is_sorted(ranks) &&
         std::ranges::all_of(ranks, [&](int rank) { return rank >= 0 && rank < size; });
}

void require_sense(const diagnose::Diagnosis& diagnosis, const std::vector<Record>& records) {
  require(!diagnosis.verdict.empty(), "a diagnosis without a verdict");
  require(records.size() + diagnosis.missing.size() == static_cast<std::size_t>(diagnosis.size),
          "a rank that is neither there nor missing");
  for (const Finding& finding : diagnosis.findings) {
    require(!finding.text.empty() && within(finding.culprits, diagnosis.size),
            "a finding without words, or of ranks that there are not");
    for (const diagnose::Waiting& one : finding.operations) {
      std::size_t ranks = 0;
      for (const auto* group : {&one.pending_on, &one.executing_on, &one.done_on, &one.absent_on}) {
        require(within(*group, diagnosis.size), "ranks that there are not");
        ranks += group->size();
      }
      require(ranks <= records.size(), "a rank in two states");
    }
  }
}

void require_report(const diagnose::Diagnosis& diagnosis, const std::vector<Record>& records) {
  require(!diagnose::to_text(diagnosis, records, {}).empty(), "a diagnosis without words");
  const auto json = nlohmann::json::parse(diagnose::to_json(diagnosis, records, {}));
  require(json.at("records").size() == records.size(), "records that are not in the diagnosis");
  require(json.at("findings").size() == diagnosis.findings.size(), "findings that are lost");
}

/// Accepts the input if the diagnosis finds anything.
bool run(Bytes bytes) {
  Choices choices(bytes);
  const std::vector<Record> records = records_of(choices);
  const diagnose::Diagnosis diagnosis = diagnose::analyze(records);
  require_sense(diagnosis, records);
  // Writing and reading a report takes ten times as long, so only some inputs get one.
  if (bytes.empty() || bytes.back() % 16 == 0) require_report(diagnosis, records);
  return !diagnosis.findings.empty();
}

std::vector<Seed> seeds() {
  // Two ranks; then commands for the first and the second.
  const std::string two("\x01\x09\x09\x01\x09\x09", 6);
  const std::string first("\x02\x00\x20\x05", 4), second("\x06\x01\x20\x05", 4);
  return {{"missing", std::string("\x01\x09\x09\x00", 4)},
          {"not-submitted", two + first},
          {"in-other-orders", two + first + second},
          {"mismatch", two + first + std::string("\x06\x00\x60\x05", 4)},
          {"unfinished", two + std::string("\x02\x00\x21\x05\x06\x00\x22\x05", 8)},
          {"silent", two + std::string("\x01\x01\x05\xF0", 4)},
          {"fault", std::string("\x01\x09\x09\x00", 4) + std::string("\x00\x01", 2)}};
}

}  // namespace

const Target diagnosis_target{.name = "diagnosis", .max_bytes = 256, .run = run, .seeds = seeds};

}  // namespace kolo::internal::fuzz
