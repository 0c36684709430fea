#include "negotiation/stall/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "base/format.hpp"

namespace kolo::internal::negotiation {

std::string ranks_in_words(const RankSet& ranks) {
  return (ranks.count() == 1 ? "rank " : "ranks ") + internal::to_string(ranks);
}

std::string operation_in_words(OperationType type, const Key& key) {
  if (key.reserved()) return std::string(internal::to_string(type));
  return fmt::format("{} {}", internal::to_string(type), to_string(key));
}

namespace {

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
  // By rank, not by who came first: the same mistake reads the same every time.
  std::ranges::sort(values, {},
                    [](const auto& value) { return value.second.ranges().front().first; });
  std::string text = name;
  for (std::size_t i = 0; i < values.size(); ++i)
    text += fmt::format("{} {} on {}", i == 0 ? "" : ",", values[i].first,
                        ranks_in_words(values[i].second));
  return text;
}

/// The first tensor in which any two variants differ; those that not all have are told apart by the
/// number of tensors.
std::size_t first_different_tensor(const Readiness& conflict) {
  const std::vector<TensorSpec>& first = conflict.variants.front().descriptor.tensors;
  for (std::size_t i = 0; i < first.size(); ++i)
    for (const Variant& variant : conflict.variants)
      if (i < variant.descriptor.tensors.size() && variant.descriptor.tensors[i] != first[i])
        return i;
  return 0;
}

using Named = std::pair<std::string, Property>;

/// What tensor `i` of a group, or the only one, may differ in.
std::vector<Named> properties_of_tensor(std::size_t i, bool grouped) {
  const std::string which = grouped ? fmt::format(" of tensor {}", i) : "";
  const auto of = [i](auto spell) {
    return [i, spell](const Descriptor& d) {
      return i < d.tensors.size() ? std::string(spell(d.tensors[i])) : std::string("none");
    };
  };
  return {{"dtype" + which, of([](const TensorSpec& t) { return internal::to_string(t.dtype); })},
          {"shape" + which, of([](const TensorSpec& t) { return internal::to_string(t.shape); })}};
}

/// Everything but the type of the operation and its tensors.
std::vector<Named> other_properties() {
  const auto number = [](auto field) {
    return [field](const Descriptor& d) { return fmt::format("{}", d.*field); };
  };
  return {
      {"reduce op", [](const Descriptor& d) { return std::string(internal::to_string(d.op)); }},
      {"root", number(&Descriptor::root)},
      {"prescale", number(&Descriptor::prescale)},
      {"postscale", number(&Descriptor::postscale)},
      {"compression",
       [](const Descriptor& d) { return std::string(internal::to_string(d.compression)); }},
      {"average over",
       [](const Descriptor& d) { return std::string(internal::to_string(d.average_over)); }},
      {"fuse exactly", number(&Descriptor::alone)},
      {"device", [](const Descriptor& d) { return internal::to_string(d.device); }},
      {"optimizer step", number(&Descriptor::step)},
      {"ranks", [](const Descriptor& d) { return internal::to_string(d.ranks); }},
      {"process set", number(&Descriptor::removed)},
  };
}

std::string type_of(const Descriptor& descriptor) {
  return std::string(internal::to_string(descriptor.type));
}

std::string number_of_tensors(const Descriptor& descriptor) {
  return std::to_string(descriptor.tensors.size());
}

}  // namespace

std::string differences(const Readiness& conflict) {
  std::string text = difference(conflict, "operation", type_of);
  if (!text.empty()) return text;  // what else differs follows from it
  std::vector<Named> properties{{"number of tensors", number_of_tensors}};
  const bool grouped = conflict.variants.front().descriptor.tensors.size() > 1;
  for (Named& property : properties_of_tensor(first_different_tensor(conflict), grouped))
    properties.push_back(std::move(property));
  for (Named& property : other_properties()) properties.push_back(std::move(property));
  for (const auto& [name, property] : properties) {
    const std::string line = difference(conflict, name, property);
    if (line.empty()) continue;
    text += (text.empty() ? "" : "; ") + line;
    if (&property == &properties.front().second) break;  // what follows compares other tensors
  }
  return text;
}

Failure explain_mismatch(const Readiness& conflict) {
  const bool one_type = difference(conflict, "", type_of).empty();
  std::string text =
      one_type ? operation_in_words(conflict.variants.front().descriptor.type, conflict.key)
               : "operation " + to_string(conflict.key);
  text += ": the ranks disagree";
  const std::string lines = differences(conflict);
  if (!lines.empty()) text += ": " + lines;
  if (!conflict.others.empty())
    text += fmt::format("; something else again on {}", ranks_in_words(conflict.others));
  return {FailureKind::mismatch, text, conflict.key.name, conflict.submitters()};
}

Failure explain_absence(const Readiness& agreed, const RankSet& absent) {
  const Descriptor& descriptor = agreed.variants.front().descriptor;
  std::string text = operation_in_words(descriptor.type, agreed.key);
  if (absent.contains(descriptor.root)) {
    text += fmt::format(": its root, rank {}, has joined and takes part in nothing until all have",
                        descriptor.root);
  } else {
    text += fmt::format(": it has no meaning without {}, which {} joined", ranks_in_words(absent),
                        absent.count() == 1 ? "has" : "have");
  }
  return {FailureKind::mismatch, text, agreed.key.name, absent};
}

Failure explain_removal(OperationType type, const Key& key, const RankSet& members) {
  return {FailureKind::shut_down,
          fmt::format("{}: the process set was removed{}", operation_in_words(type, key),
                      members.empty() ? "" : " (it had " + ranks_in_words(members) + ')'),
          key.name, members};
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

Failure explain_stall(const StallEntry& stalled, OperationType type, const Key& key) {
  const Lag& lag = stalled.lag;
  std::string text = operation_in_words(type, key);
  if (key == lag.key) {
    text += fmt::format(": not submitted by {} within {} s", ranks_in_words(stalled.missing),
                        static_cast<double>(lag.waited.count()) / 1000.0);
  } else {
    text += fmt::format(": {} was ended because {} did not submit {}",
                        key.set == world_set ? "the session" : "the process set",
                        ranks_in_words(stalled.missing), operation_in_words(lag.type, lag.key));
  }
  text += stalled.details;
  return {FailureKind::stalled, text, key.name, stalled.missing};
}

}  // namespace kolo::internal::negotiation
