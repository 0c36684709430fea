// SPDX-License-Identifier: Apache-2.0
#include "negotiation/stall/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/format.hpp"

namespace kolo::internal::negotiation {

std::string operation_in_words(OperationType type, const Key& key) {
  if (key.reserved()) return std::string(internal::to_string(type));
  return fmt::format("{} {}", internal::to_string(type), to_string(key));
}

namespace {

constexpr const char* number_of_tensors = "number of tensors";

using Property = std::function<std::string(const Descriptor&)>;

/// Text such as "shape [7] on rank 0, [8] on ranks 1-3"; "" if all variants agree.
std::string difference(const Readiness& conflict, const std::string& name,
                       const Property& property) {
  std::map<std::string, RankSet> ranks_of;
  for (const Variant& variant : conflict.variants)
    ranks_of[property(variant.descriptor)].insert(variant.ranks);
  if (ranks_of.size() < 2) return {};
  std::vector<std::pair<std::string, RankSet>> values(ranks_of.begin(), ranks_of.end());
  // Sort by rank instead of arrival, so that the same mistake gives the same message every time.
  std::ranges::sort(values, {},
                    [](const auto& value) { return value.second.ranges().front().first; });
  std::string text = name;
  for (std::size_t i = 0; i < values.size(); ++i)
    text += fmt::format("{} {} on {}", i == 0 ? "" : ",", values[i].first,
                        ranks_in_words(values[i].second));
  return text;
}

/// The index of the first tensor in which two variants differ. Skips variants that lack the tensor,
/// since their number of tensors differs anyway.
std::size_t first_different_tensor(const Readiness& conflict) {
  const std::vector<TensorSpec>& first = conflict.variants.front().descriptor.tensors;
  for (std::size_t i = 0; i < first.size(); ++i)
    for (const Variant& variant : conflict.variants)
      if (i < variant.descriptor.tensors.size() && variant.descriptor.tensors[i] != first[i])
        return i;
  return 0;
}

using Named = std::pair<std::string, Property>;

template <typename Value>
std::string spelled(const Value& value) {
  if constexpr (std::is_arithmetic_v<Value>) {
    return fmt::format("{}", value);
  } else {
    return std::string(internal::to_string(value));
  }
}

template <typename Value>
Property field(Value Descriptor::*member) {
  return [member](const Descriptor& d) { return spelled(d.*member); };
}

/// A field of tensor `i`; "none" for a descriptor with fewer tensors.
template <typename Value>
Property field(std::size_t i, Value TensorSpec::*member) {
  return [i, member](const Descriptor& d) {
    return i < d.tensors.size() ? spelled(d.tensors[i].*member) : "none";
  };
}

/// All properties in which variants of the same type of operation may differ.
std::vector<std::pair<std::string, Property>> properties(const Readiness& conflict) {
  const std::size_t i = first_different_tensor(conflict);
  const bool grouped = conflict.variants.front().descriptor.tensors.size() > 1;
  const std::string which = grouped ? fmt::format(" of tensor {}", i) : "";
  return {{number_of_tensors, [](const Descriptor& d) { return spelled(d.tensors.size()); }},
          {"dtype" + which, field(i, &TensorSpec::dtype)},
          {"shape" + which, field(i, &TensorSpec::shape)},
          {"reduce op", field(&Descriptor::op)},
          {"root", field(&Descriptor::root)},
          {"prescale", field(&Descriptor::prescale)},
          {"postscale", field(&Descriptor::postscale)},
          {"compression", field(&Descriptor::compression)},
          {"average over", field(&Descriptor::average_over)},
          {"fuse exactly", field(&Descriptor::alone)},
          {"device", field(&Descriptor::device)},
          {"optimizer step", field(&Descriptor::step)},
          {"ranks", field(&Descriptor::ranks)},
          {"process set", field(&Descriptor::removed)}};
}

}  // namespace

std::string differences(const Readiness& conflict) {
  std::string text = difference(conflict, "operation", field(&Descriptor::type));
  if (!text.empty()) return text;  // different operations differ in everything else too
  for (const auto& [name, property] : properties(conflict)) {
    const std::string line = difference(conflict, name, property);
    if (line.empty()) continue;
    text += (text.empty() ? "" : "; ") + line;
    if (name == number_of_tensors) break;  // the tensors cannot be compared by position
  }
  return text;
}

Failure explain_mismatch(const Readiness& conflict) {
  const bool one_type = difference(conflict, "", field(&Descriptor::type)).empty();
  std::string text =
      one_type ? operation_in_words(conflict.variants.front().descriptor.type, conflict.key)
               : "operation " + to_string(conflict.key);
  text += ": the ranks disagree";
  const std::string lines = differences(conflict);
  if (!lines.empty()) text += ": " + lines;
  if (!conflict.others.empty())
    text += fmt::format("; further variants on {}", ranks_in_words(conflict.others));
  return {FailureKind::mismatch, text, conflict.key.name, conflict.submitters()};
}

Failure explain_absence(const Readiness& agreed, const RankSet& absent) {
  const Descriptor& descriptor = agreed.variants.front().descriptor;
  std::string text = operation_in_words(descriptor.type, agreed.key);
  if (absent.contains(descriptor.root)) {
    text +=
        fmt::format(": its root, rank {}, has joined and takes no part until all ranks have joined",
                    descriptor.root);
  } else {
    text += fmt::format(": it is undefined without {}, which {} joined", ranks_in_words(absent),
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
