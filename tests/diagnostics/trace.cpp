// SPDX-License-Identifier: Apache-2.0
#include "trace.hpp"

#include <fstream>
#include <map>
#include <set>

namespace kolo::internal::test {
namespace {

using Json = nlohmann::json;

/// The state of one track.
struct Track {
  double last = 0.0;  // no later event begins before
  double busy = 0.0;  // no later X begins before
  int open = 0;       // Bs
};

std::string check_event(const Json& event, Track& track) {
  const std::string phase = event.at("ph");
  if (phase != "M" && !event.at("ts").is_number()) return "ts is no number";
  if (phase == "M") return event.at("args").is_object() ? "" : "M without args";
  const double begin = event.at("ts");
  if (begin < track.last) return "ts goes back on a track";
  track.last = begin;
  if (phase == "X") {
    const double duration = event.at("dur");
    if (duration < 0.0) return "dur is negative";
    if (begin < track.busy - 0.002) return "two X of a track overlap";
    track.busy = begin + duration;
  } else if (phase == "B") {
    if (++track.open > 1) return "B within B";
  } else if (phase == "E") {
    if (--track.open < 0) return "E without B";
    if (begin < track.busy - 0.002) return "E within an X";
  } else if (phase != "i") {
    return "ph is " + phase;
  }
  if (phase != "E" && event.at("name").get<std::string>().empty()) return "an empty name";
  return "";
}

}  // namespace

nlohmann::json read_trace(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

std::string check_trace(const Json& trace, bool whole) {
  if (!trace.is_array()) return "no array";
  std::map<std::pair<int, int>, Track> tracks;
  std::set<std::pair<int, int>> named;
  for (const Json& event : trace) {
    const std::pair<int, int> id{event.at("pid").get<int>(), event.at("tid").get<int>()};
    const std::string complaint = check_event(event, tracks[id]);
    if (!complaint.empty()) return complaint + ": " + event.dump();
    if (event.at("ph") == "M") {
      if (event.at("name") == "thread_name") named.insert(id);
    } else if (!named.contains(id)) {
      return "a track without a name: " + event.dump();
    }
  }
  for (const auto& [id, track] : tracks)
    if (whole && track.open != 0) return "B without E";
  return "";
}

std::vector<Json> find_events(const Json& trace, const std::string& phase,
                              const std::string& name) {
  std::vector<Json> found;
  for (const Json& event : trace)
    if (event.at("ph") == phase && event.value("name", "") == name) found.push_back(event);
  return found;
}

}  // namespace kolo::internal::test
