#include "negotiation/explain.hpp"

#include <fmt/format.h>

#include <functional>
#include <utility>
#include <vector>

#include "base/format.hpp"

namespace kolo::negotiation {
namespace {

std::string ranks_in_words(const RankSet& ranks) {
  return (ranks.count() == 1 ? "rank " : "ranks ") + kolo::to_string(ranks);
}

std::string operation_in_words(OperationType type, const Key& key) {
  return fmt::format("{} {}", kolo::to_string(type), to_string(key));
}

using Property = std::function<std::string(const Descriptor&)>;

/// "shape [7] on rank 0, [8] on ranks 1-3", or "" if all have the same.
std::string difference(const Readiness& conflict, const std::string& name,
                       const Property& property) {
  std::vector<std::pair<std::string, RankSet>> values;
  for (const Variant& variant : conflict.variants) {
    const std::string value = property(variant.descriptor);
    bool known = false;
    for (auto& [other, ranks] : values) {
      if (other != value) continue;
      ranks.insert(variant.ranks);
      known = true;
    }
    if (!known) values.emplace_back(value, variant.ranks);
  }
  if (values.size() < 2) return {};
  std::string text = name;
  for (std::size_t i = 0; i < values.size(); ++i)
    text += fmt::format("{} {} on {}", i == 0 ? "" : ",", values[i].first,
                        ranks_in_words(values[i].second));
  return text;
}

}  // namespace

Failure explain_mismatch(const Readiness& conflict) {
  const std::vector<std::pair<std::string, Property>> properties = {
      {"operation", [](const Descriptor& d) { return std::string(kolo::to_string(d.type)); }},
      {"dtype", [](const Descriptor& d) { return std::string(kolo::to_string(d.dtype)); }},
      {"shape", [](const Descriptor& d) { return kolo::to_string(d.shape); }},
      {"reduce op", [](const Descriptor& d) { return std::string(kolo::to_string(d.op)); }},
      {"root", [](const Descriptor& d) { return std::to_string(d.root); }},
      {"prescale", [](const Descriptor& d) { return fmt::format("{}", d.prescale); }},
      {"postscale", [](const Descriptor& d) { return fmt::format("{}", d.postscale); }},
      {"device", [](const Descriptor& d) { return kolo::to_string(d.device); }},
      {"optimizer step", [](const Descriptor& d) { return std::to_string(d.step); }},
  };
  const bool one_type = difference(conflict, "", properties.front().second).empty();
  std::string text =
      one_type ? operation_in_words(conflict.variants.front().descriptor.type, conflict.key)
               : "operation " + to_string(conflict.key);
  text += ": the ranks disagree";
  const char* separator = ": ";
  for (const auto& [name, property] : properties) {
    const std::string line = difference(conflict, name, property);
    if (line.empty()) continue;
    text += separator + line;
    separator = "; ";
    if (!one_type) break;  // what else differs follows from it
  }
  RankSet ranks = conflict.others;
  for (const Variant& variant : conflict.variants) ranks.insert(variant.ranks);
  if (!conflict.others.empty())
    text += fmt::format("; something else again on {}", ranks_in_words(conflict.others));
  return {FailureKind::mismatch, text, conflict.key.name, ranks};
}

Failure explain_departure(const Departure& departure, OperationType type, const Key& key) {
  return {FailureKind::peer_left,
          fmt::format("{}: rank {} left the session{}{}", operation_in_words(type, key),
                      departure.rank, departure.reason.empty() ? "" : ": ", departure.reason),
          key.name, RankSet::of(departure.rank)};
}

Failure explain_own_departure(const Departure& departure, OperationType type, const Key& key) {
  return {FailureKind::shut_down,
          fmt::format("{}: still pending when this rank, {}, left the session",
                      operation_in_words(type, key), departure.rank),
          key.name, RankSet::of(departure.rank)};
}

Failure explain_stall(const Lag& stalled, int ranks, OperationType type, const Key& key) {
  const RankSet missing = stalled.submitted.complement(ranks);
  std::string text = operation_in_words(type, key);
  if (key == stalled.key) {
    text += fmt::format(": not submitted by {} within {} s", ranks_in_words(missing),
                        static_cast<double>(stalled.waited.count()) / 1000.0);
  } else {
    text += fmt::format(": the session was ended because {} did not submit {}",
                        ranks_in_words(missing), operation_in_words(stalled.type, stalled.key));
  }
  return {FailureKind::stalled, text, key.name, missing};
}

std::string report_lag(const Lag& lag, int ranks) {
  return fmt::format(
      "{} has waited {} s: submitted by {}, missing {}", operation_in_words(lag.type, lag.key),
      static_cast<double>(lag.waited.count()) / 1000.0, ranks_in_words(lag.submitted),
      ranks_in_words(lag.submitted.complement(ranks)));
}

}  // namespace kolo::negotiation
