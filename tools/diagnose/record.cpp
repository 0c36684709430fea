#include "record.hpp"

#include <fmt/format.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

namespace diagnose {
namespace {

using Json = nlohmann::json;

constexpr int known_version = 1;

class Reader {
 public:
  explicit Reader(const std::string& path) { record_.file = path; }

  Record read() {
    std::ifstream file(record_.file, std::ios::binary);
    if (!file) throw ReadError(record_.file + ": cannot be opened");
    std::string line;
    while (std::getline(file, line)) {
      ++line_;
      if (ended_) refuse("there is more after the last line");
      try {
        take(Json::parse(line));
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

  void take(const Json& json) {
    if (line_ == 1) return take_header(json);
    if (json.contains("event")) return take_event(json);
    if (json.contains("pending")) return take_pending(json);
    if (json.contains("text") && json.contains("name")) return take_name(json);
    if (json.contains("note"))
      return record_.notes.push_back({json.at("note").get<std::string>(),
                                      json.at("ns").get<std::int64_t>(),
                                      json.at("text").get<std::string>()});
    if (!json.contains("lines")) refuse("is of no kind that is known");
    if (json.at("lines").get<std::uint64_t>() + 1 != line_)
      refuse(fmt::format("{} lines were written before", json.at("lines").get<std::uint64_t>()));
    ended_ = true;
  }

  void take_header(const Json& json) {
    if (!json.is_object() || !json.contains("kolo_flight_record")) refuse("is no flight record");
    const int version = json.at("kolo_flight_record").get<int>();
    if (version != known_version)
      refuse(
          fmt::format("is of version {}; this program reads version {}", version, known_version));
    json.at("session").get_to(record_.session);
    json.at("rank").get_to(record_.rank);
    json.at("size").get_to(record_.size);
    json.at("host").get_to(record_.host);
    json.at("process").get_to(record_.process);
    json.at("reason").get_to(record_.reason);
    json.at("ns").get_to(record_.ns);
    json.at("wall_ns").get_to(record_.wall_ns);
    json.at("events").get_to(record_.events);
    json.at("submitted").get_to(record_.submitted);
    json.at("finished").get_to(record_.finished);
    if (record_.rank < 0 || record_.rank >= record_.size)
      refuse(fmt::format("rank {} of {}", record_.rank, record_.size));
  }

  void take_name(const Json& json) {
    Record::NameKey name{json.at("set").get<std::int64_t>(), json.at("text").get<std::string>()};
    record_.names[name] = {json.at("round").get<std::uint64_t>(),
                           json.at("submitted").get<std::uint64_t>()};
    names_[json.at("name").get<std::uint64_t>()] = std::move(name);
  }

  [[nodiscard]] Key key_of(const Json& json, const char* name) const {
    const auto found = names_.find(json.at(name).get<std::uint64_t>());
    if (found == names_.end()) refuse("a name that is not in the file");
    return {json.at("round").get<std::uint64_t>(), found->second.first, found->second.second,
            json.at("count").get<std::uint64_t>()};
  }

  void take_pending(const Json& json) {
    const Key key = key_of(json, "pending");
    Operation& operation = record_.operations[key];
    operation.state =
        json.at("state").get<std::string>() == "executing" ? State::executing : State::negotiating;
    json.at("ns").get_to(operation.submitted_ns);
    json.at("operation").get_to(operation.type);
    json.at("bytes").get_to(operation.bytes);
    json.at("details").get_to(operation.details);
    if (!json.at("batch").is_null()) json.at("batch").get_to(operation.batch);
  }

  void take_event(const Json& json) {
    const std::string kind = json.at("event").get<std::string>();
    record_.last_ns = json.at("ns").get<std::int64_t>();
    if (json.at("name").is_null()) return;
    const Key key = key_of(json, "name");
    const auto [found, is_new] = record_.operations.try_emplace(key);
    Operation& operation = found->second;
    json.at("operation").get_to(operation.type);
    json.at("dtype").get_to(operation.dtype);
    json.at("bytes").get_to(operation.bytes);
    if (kind == "submitted") {
      operation.submitted_ns = record_.last_ns;
      record_.order.push_back(key);
    } else {
      operation.state = kind == "finished" ? State::finished : State::failed;
      if (!json.at("batch").is_null()) json.at("batch").get_to(operation.batch);
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
