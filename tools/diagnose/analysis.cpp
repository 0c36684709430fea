// SPDX-License-Identifier: Apache-2.0
#include "analysis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/descriptor.hpp"

namespace diagnose {
namespace {

using kolo::internal::operation_table;
using kolo::internal::OperationTraits;

constexpr double silence_seconds = 1.0;
constexpr std::size_t max_listed = 5;

using Records = std::vector<Record>;

bool may_differ_in_bytes(const std::string& type) {
  const auto traits = std::ranges::find(operation_table, type, &OperationTraits::name);
  return traits != operation_table.end() && traits->bytes_may_differ;
}

std::vector<int> ranks_of(const Records& records) {
  std::vector<int> ranks;
  for (const Record& record : records) ranks.push_back(record.rank);
  return ranks;
}

/// Whether the rank may be a member of the set. Records do not list members, so a rank counts as a
/// member if it ever submitted an operation to the set.
bool may_be_member(const Record& record, std::int64_t set) {
  return set == 0 || std::ranges::any_of(record.names,
                                         [&](const auto& name) { return name.first.first == set; });
}

/// All operations that are pending on some rank, the oldest first.
std::vector<Waiting> find_waiting(const Records& records) {
  std::set<Key> keys;
  for (const Record& record : records)
    for (const auto& [key, operation] : record.operations)
      if (operation.state == State::negotiating || operation.state == State::executing)
        keys.insert(key);
  std::vector<Waiting> all;
  for (const Key& key : keys) {
    Waiting waiting{.key = key};
    for (const Record& record : records) {
      const auto found = record.operations.find(key);
      if (found == record.operations.end()) {
        if (record.has_submitted(key)) {
          waiting.done_on.push_back(record.rank);
        } else if (may_be_member(record, key.set) && !record.waits_in_join()) {
          waiting.absent_on.push_back(record.rank);
        }
        continue;
      }
      const Operation& operation = found->second;
      auto& where = operation.state == State::negotiating ? waiting.pending_on
                    : operation.state == State::executing ? waiting.executing_on
                                                          : waiting.done_on;
      where.push_back(record.rank);
      if (operation.state != State::negotiating && operation.state != State::executing) continue;
      waiting.seconds =
          std::max(waiting.seconds, record.seconds_before_end(operation.submitted_ns));
      if (waiting.details.empty())
        waiting.details = operation.details.empty() ? operation.type : operation.details;
    }
    all.push_back(std::move(waiting));
  }
  std::ranges::stable_sort(all, std::greater<>(), &Waiting::seconds);
  return all;
}

std::string last_words(const Record& record) {
  if (record.order.empty()) return fmt::format("rank {} has submitted nothing", record.rank);
  const Key& last = record.order.back();
  const Operation& operation = record.operations.at(last);
  const char* state = operation.state == State::finished    ? "which is done"
                      : operation.state == State::failed    ? "which failed"
                      : operation.state == State::executing ? "which is being executed"
                                                            : "for which it waits";
  return fmt::format("rank {} submitted last {} {}, {:.1f} s before its record, {}", record.rank,
                     operation.type, to_string(last),
                     record.seconds_before_end(operation.submitted_ns), state);
}

std::string list(const std::vector<Waiting>& operations) {
  std::string text;
  for (std::size_t i = 0; i < std::min(operations.size(), max_listed); ++i)
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", operations[i].details,
                        to_string(operations[i].key));
  if (operations.size() > max_listed)
    text += fmt::format(" and {} more", operations.size() - max_listed);
  return text;
}

void find_absent(const Records& records, const std::vector<Waiting>& waiting,
                 std::vector<Finding>& findings) {
  // grouped by the absent ranks
  std::vector<std::pair<std::vector<int>, std::vector<Waiting>>> groups;
  for (const Waiting& one : waiting) {
    if (one.absent_on.empty() || one.pending_on.empty()) continue;
    auto found = std::ranges::find(
        groups, one.absent_on, [](const auto& group) -> const auto& { return group.first; });
    if (found == groups.end()) found = groups.insert(groups.end(), {one.absent_on, {}});
    found->second.push_back(one);
  }
  for (auto& [absent, operations] : groups) {
    std::string text = fmt::format("{} {} not submitted {}, for which {} {} for {:.1f} s",
                                   in_words(absent), absent.size() == 1 ? "has" : "have",
                                   list(operations), in_words(operations.front().pending_on),
                                   operations.front().pending_on.size() == 1 ? "waits" : "wait",
                                   operations.front().seconds);
    for (const Record& record : records)
      if (std::ranges::find(absent, record.rank) != absent.end()) text += "; " + last_words(record);
    findings.push_back(
        {Finding::Kind::not_submitted, absent, std::move(text), std::move(operations)});
  }
}

/// Finds operations with the same key whose arguments differ between ranks.
void find_mismatches(const Records& records, std::vector<Finding>& findings) {
  std::map<Key, std::map<std::string, std::vector<int>>> variants;
  for (const Record& record : records)
    for (const auto& [key, operation] : record.operations) {
      if (operation.dtype.empty()) continue;  // the record no longer has an event of the operation
      std::string what = operation.type + ' ' + operation.dtype;
      if (!may_differ_in_bytes(operation.type)) what += fmt::format(", {} bytes", operation.bytes);
      variants[key][what].push_back(record.rank);
    }
  for (const auto& [key, its] : variants) {
    if (its.size() < 2) continue;
    std::string text = to_string(key) + " differs: ";
    const auto fewest = std::ranges::min_element(
        its, {}, [](const auto& variant) { return variant.second.size(); });
    for (const auto& [what, ranks] : its)
      text +=
          fmt::format("{}{} on {}", what == its.begin()->first ? "" : "; ", what, in_words(ranks));
    const bool clear = fewest->second.size() * 2 < records.size();
    findings.push_back({Finding::Kind::mismatch,
                        clear ? fewest->second : std::vector<int>{},
                        std::move(text),
                        {}});
  }
}

void find_unfinished(const Records& records, const std::vector<Waiting>& waiting,
                     std::vector<Finding>& findings) {
  std::map<std::int64_t, std::vector<Waiting>> batches;
  for (const Waiting& one : waiting) {
    if (one.executing_on.empty()) continue;
    for (const Record& record : records) {
      const auto found = record.operations.find(one.key);
      if (found == record.operations.end() || found->second.state != State::executing) continue;
      batches[found->second.batch].push_back(one);
      break;
    }
  }
  for (auto& [batch, operations] : batches) {
    const Waiting& first = operations.front();
    std::string text = fmt::format("batch {} ({}) is being executed on {}", batch, list(operations),
                                   in_words(first.executing_on));
    if (!first.done_on.empty()) text += ", done on " + in_words(first.done_on);
    if (!first.pending_on.empty()) text += ", not begun on " + in_words(first.pending_on);
    if (!first.absent_on.empty()) text += ", not submitted by " + in_words(first.absent_on);
    findings.push_back(
        {Finding::Kind::unfinished, first.pending_on, std::move(text), std::move(operations)});
  }
}

/// Per rank, the keys of the world's operations in the order of submission, starting at the first
/// one that all records still contain. None if there is no such operation.
std::optional<std::vector<std::vector<Key>>> common_orders(const Records& records) {
  std::vector<std::vector<Key>> orders;
  for (const Record& record : records) {
    std::vector<Key> order;
    for (const Key& key : record.order)
      if (key.set == 0) order.push_back(key);
    orders.push_back(std::move(order));
  }
  for (const Key& first : orders.front()) {
    const bool known = std::ranges::all_of(
        orders, [&](const auto& order) { return std::ranges::find(order, first) != order.end(); });
    if (!known) continue;
    for (auto& order : orders) order.erase(order.begin(), std::ranges::find(order, first));
    return orders;
  }
  return std::nullopt;
}

/// Finds the first place where the orders of submission differ. Called only if an operation is
/// pending, because ranks may submit in different orders.
void find_divergence(const Records& records, std::vector<Finding>& findings) {
  const auto orders = records.size() < 2 ? std::nullopt : common_orders(records);
  if (!orders) return;
  for (std::size_t i = 0;; ++i) {
    std::map<std::string, std::vector<int>> what;  // submissions at this place
    bool any = false;
    for (std::size_t r = 0; r < records.size(); ++r) {
      const auto& order = (*orders)[r];
      any |= i < order.size();
      what[i < order.size() ? to_string(order[i]) : "nothing more"].push_back(records[r].rank);
    }
    if (!any) return;
    if (what.size() == 1) continue;
    std::string text = "the ranks' submissions differ first";
    if (i > 0) text += fmt::format(" after {}", to_string(orders->front()[i - 1]));
    for (const auto& [operation, ranks] : what)
      text += fmt::format("{} {}: {}", operation == what.begin()->first ? ":" : ";",
                          in_words(ranks), operation);
    findings.push_back({Finding::Kind::diverged, {}, std::move(text), {}});
    return;
  }
}

void find_silent(const Records& records, std::vector<Finding>& findings) {
  const auto wall = [](const Record& record) {
    return record.wall_ns - record.ns + record.last_ns;
  };
  std::int64_t latest = 0;
  for (const Record& record : records) latest = std::max(latest, wall(record));
  for (const Record& record : records) {
    const double seconds = static_cast<double>(latest - wall(record)) * 1e-9;
    if (record.last_ns == 0 || seconds < silence_seconds) continue;
    findings.push_back({Finding::Kind::silent,
                        {record.rank},
                        fmt::format("the last event of rank {} is {:.1f} s older than the last of "
                                    "any rank",
                                    record.rank, seconds),
                        {}});
  }
}

void find_faults(const Records& records, std::vector<Finding>& findings) {
  std::map<std::string, std::vector<int>> told;
  for (const Record& record : records)
    for (const Note& note : record.notes)
      if (note.kind != "plan begun" && !note.text.empty())
        told[note.kind + ": " + note.text].push_back(record.rank);
  for (auto& [text, ranks] : told) {
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    findings.push_back(
        {Finding::Kind::fault, {}, fmt::format("{}: {}", in_words(ranks), text), {}});
  }
}

}  // namespace

Diagnosis analyze(const Records& records) {
  Diagnosis diagnosis{.session = records.front().session, .size = records.front().size};
  const std::vector<int> present = ranks_of(records);
  for (int rank = 0; rank < diagnosis.size; ++rank)
    if (!std::ranges::binary_search(present, rank)) diagnosis.missing.push_back(rank);
  auto& findings = diagnosis.findings;
  const std::vector<Waiting> waiting = find_waiting(records);
  if (!diagnosis.missing.empty())
    findings.push_back({Finding::Kind::no_record,
                        diagnosis.missing,
                        fmt::format("{} left no record: killed, or none was asked for there",
                                    in_words(diagnosis.missing)),
                        {}});
  find_mismatches(records, findings);
  find_absent(records, waiting, findings);
  find_unfinished(records, waiting, findings);
  if (!waiting.empty()) find_divergence(records, findings);
  find_silent(records, findings);
  find_faults(records, findings);
  const auto telling = std::ranges::find_if(
      findings, [](const Finding& finding) { return !finding.culprits.empty(); });
  if (telling != findings.end()) {
    diagnosis.verdict = telling->text;
  } else if (!waiting.empty()) {
    diagnosis.verdict = fmt::format("{} pending on every rank that left a record", list(waiting));
  } else {
    diagnosis.verdict = "nothing is pending, and the ranks agree";
  }
  return diagnosis;
}

const char* to_string(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::no_record: return "no record";
    case Finding::Kind::not_submitted: return "not submitted";
    case Finding::Kind::mismatch: return "mismatch";
    case Finding::Kind::unfinished: return "unfinished";
    case Finding::Kind::diverged: return "diverged";
    case Finding::Kind::silent: return "silent";
    case Finding::Kind::fault: return "fault";
  }
  return "?";
}

std::string in_words(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
    if (last > i) text += fmt::format("-{}", ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace diagnose
