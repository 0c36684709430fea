// SPDX-License-Identifier: Apache-2.0
#include "record.hpp"

#include <fmt/format.h>

#include <concepts>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace diagnose {
namespace {

using Json = nlohmann::json;

constexpr int known_version = 1;
/// 95 years, so that sums and differences of several times fit into 64 bits.
constexpr std::int64_t max_nanoseconds = 3'000'000'000'000'000'000;
/// More levels than any line has. Printing a value in a message recurses once per level.
constexpr int max_depth = 8;
/// More ranks than any machine can run.
constexpr int max_ranks = 1 << 24;

class Reader {
 public:
  explicit Reader(const std::string& path) { record_.file = path; }

  Record read() {
    if (std::filesystem::is_directory(record_.file))
      throw ReadError(record_.file + ": is a directory");
    std::ifstream file(record_.file, std::ios::binary);
    if (!file) throw ReadError(record_.file + ": cannot be opened");
    std::string line;
    while (std::getline(file, line)) {
      ++line_;
      if (ended_) refuse("there is more after the last line");
      try {
        take(Json::parse(line,
                         [&](int depth, Json::parse_event_t /*event*/, const Json& /*parsed*/) {
                           if (depth > max_depth) refuse("is nested too deeply");
                           return true;
                         }));
      } catch (const Json::exception& error) {
        refuse(error.what());
      }
    }
    if (line_ == 0) throw ReadError(record_.file + ": is empty");
    if (!ended_) throw ReadError(fmt::format("{}: ends early, after line {}", record_.file, line_));
    return std::move(record_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw ReadError(fmt::format("{}: line {}: {}", record_.file, line_, why));
  }

  /// An integer within the type's range.
  template <std::integral Integer>
  [[nodiscard]] Integer number(const Json& json, const char* name) const {
    const Json& value = json.at(name);
    if (value.is_number_unsigned() && std::in_range<Integer>(value.get<std::uint64_t>()))
      return static_cast<Integer>(value.get<std::uint64_t>());
    if (value.is_number_integer() && !value.is_number_unsigned() &&
        std::in_range<Integer>(value.get<std::int64_t>()))
      return static_cast<Integer>(value.get<std::int64_t>());
    refuse(fmt::format("{} is {}", name, value.dump()));
  }

  [[nodiscard]] std::int64_t nanoseconds(const Json& json, const char* name) const {
    const auto count = number<std::int64_t>(json, name);
    if (count < 0 || count > max_nanoseconds) refuse(fmt::format("{} is {}", name, count));
    return count;
  }

  void take(const Json& json) {
    if (line_ == 1) return take_header(json);
    if (json.contains("event")) return take_event(json);
    if (json.contains("pending")) return take_pending(json);
    if (json.contains("text") && json.contains("name")) return take_name(json);
    if (json.contains("note"))
      return record_.notes.push_back({json.at("note").get<std::string>(), nanoseconds(json, "ns"),
                                      json.at("text").get<std::string>()});
    if (!json.contains("lines")) refuse("is of no kind that is known");
    const auto lines = number<std::uint64_t>(json, "lines");
    if (lines != line_ - 1) refuse(fmt::format("{} lines were written before", lines));
    ended_ = true;
  }

  void take_header(const Json& json) {
    if (!json.is_object() || !json.contains("kolo_flight_record")) refuse("is no flight record");
    const int version = number<int>(json, "kolo_flight_record");
    if (version != known_version)
      refuse(
          fmt::format("is of version {}; this program reads version {}", version, known_version));
    json.at("session").get_to(record_.session);
    record_.rank = number<int>(json, "rank");
    record_.size = number<int>(json, "size");
    json.at("host").get_to(record_.host);
    record_.process = number<std::int64_t>(json, "process");
    json.at("reason").get_to(record_.reason);
    record_.ns = nanoseconds(json, "ns");
    record_.wall_ns = nanoseconds(json, "wall_ns");
    record_.events = number<std::uint64_t>(json, "events");
    record_.submitted = number<std::uint64_t>(json, "submitted");
    record_.finished = number<std::uint64_t>(json, "finished");
    if (record_.rank < 0 || record_.rank >= record_.size || record_.size > max_ranks)
      refuse(fmt::format("rank {} of {}", record_.rank, record_.size));
  }

  void take_name(const Json& json) {
    Record::NameKey name{number<std::int64_t>(json, "set"), json.at("text").get<std::string>()};
    record_.names[name] = {number<std::uint64_t>(json, "round"),
                           number<std::uint64_t>(json, "submitted")};
    names_[number<std::uint64_t>(json, "name")] = std::move(name);
  }

  [[nodiscard]] Key key_of(const Json& json, const char* name) const {
    const auto found = names_.find(number<std::uint64_t>(json, name));
    if (found == names_.end()) refuse("a name that is not in the file");
    return {number<std::uint64_t>(json, "round"), found->second.first, found->second.second,
            number<std::uint64_t>(json, "count")};
  }

  void take_pending(const Json& json) {
    const Key key = key_of(json, "pending");
    Operation& operation = record_.operations[key];
    operation.state =
        json.at("state").get<std::string>() == "executing" ? State::executing : State::negotiating;
    operation.submitted_ns = nanoseconds(json, "ns");
    json.at("operation").get_to(operation.type);
    operation.bytes = number<std::int64_t>(json, "bytes");
    json.at("details").get_to(operation.details);
    if (!json.at("batch").is_null()) operation.batch = number<std::int64_t>(json, "batch");
  }

  void take_event(const Json& json) {
    const std::string kind = json.at("event").get<std::string>();
    record_.last_ns = nanoseconds(json, "ns");
    if (kind == "started" && !json.at("batch").is_null())
      record_.started.emplace(number<std::int64_t>(json, "batch"), record_.last_ns);
    if (json.at("name").is_null()) return;
    const Key key = key_of(json, "name");
    const auto [found, is_new] = record_.operations.try_emplace(key);
    Operation& operation = found->second;
    json.at("operation").get_to(operation.type);
    json.at("dtype").get_to(operation.dtype);
    operation.bytes = number<std::int64_t>(json, "bytes");
    if (kind == "submitted") {
      operation.submitted_ns = record_.last_ns;
      record_.order.push_back(key);
    } else {
      operation.state = kind == "finished" ? State::finished : State::failed;
      operation.ended_ns = record_.last_ns;
      if (!json.at("batch").is_null()) operation.batch = number<std::int64_t>(json, "batch");
    }
  }

  Record record_{};
  std::map<std::uint64_t, Record::NameKey> names_{};
  std::uint64_t line_ = 0;
  bool ended_ = false;
};

}  // namespace

bool Record::has_submitted(const Key& key) const {
  const auto found = names.find({key.set, key.name});
  return found != names.end() &&
         (found->second.round > key.round ||
          (found->second.round == key.round && found->second.submitted > key.count));
}

bool Record::waits_in_join() const {
  for (const auto& [key, operation] : operations)
    if (operation.type == "join" && operation.state == State::negotiating) return true;
  return false;
}

Record read_record(const std::string& path) { return Reader(path).read(); }

std::string to_string(const Key& key) {
  std::string text = key.name.empty() ? fmt::format("#{}", key.count)
                     : key.name.front() == '('
                         ? key.name
                         : fmt::format("\"{}\" (number {})", key.name, key.count);
  if (key.set != 0) text += fmt::format(" of process set {}", key.set);
  return text;
}

}  // namespace diagnose
