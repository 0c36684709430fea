// SPDX-License-Identifier: Apache-2.0
// The half of explain.hpp that finds deadlocks and writes reports. explain.cpp creates failures.
#include "negotiation/stall/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/format.hpp"

namespace kolo::internal::negotiation {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t max_lines = 8;
constexpr std::size_t max_names = 3;

/// Text such as " for 75.0 s"; "" without times.
std::string lasting(bool times, milliseconds time) {
  return times ? " for " + in_seconds(time) : "";
}

class StatusLines {
 public:
  StatusLines(const Statuses& statuses, const std::optional<Key>& wanted, bool times,
              bool all_asked)
      : statuses_(statuses), wanted_(wanted), times_(times), all_asked_(all_asked) {}

  void add(const RankSet& ranks) {
    for (const int rank : ranks.to_vector()) {
      if (!seen_.contains(rank)) add(rank);
      if (full()) return;
    }
  }

  [[nodiscard]] std::string text() const {
    std::string text;
    for (std::size_t i = 0; i < std::min(lines_.size(), max_lines); ++i)
      text += fmt::format("\n  {}: {}", ranks_in_words(lines_[i].ranks), lines_[i].text);
    if (full()) text += "\n  ...";
    return text;
  }

 private:
  [[nodiscard]] bool full() const { return lines_.size() > max_lines; }

  void add(int rank) {
    seen_.insert(RankSet::of(rank));
    const auto status = statuses_.find(rank);
    if (status == statuses_.end()) {
      if (all_asked_) add_line(rank, "no response from the rank or its host", "");
      return;
    }
    const std::string text = doing(status->second, times_);
    add_line(rank, text, status->second.silent() ? text : doing(status->second, false));
    if (!status->second.batch.empty() && !status->second.silent()) add(status->second.awaited);
  }

  /// Ranks with the same `kind` share a line, with the `text` of the first. `kind` is the text
  /// without times, which differ from rank to rank.
  void add_line(int rank, std::string text, std::string kind) {
    for (Line& line : lines_)
      if (line.kind == kind) return line.ranks.insert(RankSet::of(rank));
    lines_.push_back({std::move(text), std::move(kind), RankSet::of(rank)});
  }

  [[nodiscard]] std::string doing(const RankStatus& status, bool times) const {
    const std::string process = times ? fmt::format("; process {}", status.process) : "";
    switch (status.state) {
      case ProcessState::stopped:
        return "stopped (state T)" + process + (times ? " continues after SIGCONT" : "");
      case ProcessState::traced: return "held by a debugger (state t)" + process;
      case ProcessState::ended: return "ended: its process is gone";
      default: break;
    }
    if (status.ended)
      return "left the session" +
             (status.ended->message.empty() ? "" : ": " + status.ended->message);
    if (status.silent())
      return fmt::format("stuck{}: nothing drives its session{}{}", lasting(times, status.heard),
                         status.state == ProcessState::uninterruptible
                             ? ", in a system call that does not end (state D)"
                             : "",
                         process);
    if (!status.batch.empty()) return executing(status);
    if (status.pending > 0) return waiting(status, times);
    if (!status.submitted) return "outside Kolo, and nothing submitted yet";
    return fmt::format("outside Kolo, and nothing submitted{}", lasting(times, status.idle));
  }

  [[nodiscard]] static std::string executing(const RankStatus& status) {
    std::string text = "executing " + status.batch;
    if (status.awaits.empty()) return text;
    return text + ", which waits for " +
           (status.awaited.empty() ? "" : ranks_in_words(status.awaited) + ' ') + status.awaits;
  }

  [[nodiscard]] std::string waiting(const RankStatus& status, bool times) const {
    std::string text = status.waits ? "waiting in Kolo for " : "outside Kolo, with pending ";
    std::vector<std::string> names;
    bool is_wanted = false;
    for (const WaitingOperation& operation : status.operations) {
      names.push_back(operation.key.name);
      is_wanted |= wanted_ && operation.key == *wanted_;
    }
    for (std::size_t i = 0; i < std::min(status.operations.size(), max_names); ++i) {
      const WaitingOperation& operation = status.operations[i];
      text += (i == 0 ? "" : ", ") + operation_in_words(operation.type, operation.key);
      if (times) text += fmt::format(" ({})", in_seconds(operation.waited));
    }
    const int more =
        status.pending - static_cast<int>(std::min(status.operations.size(), max_names));
    if (more > 0) text += fmt::format(" and {} more", more);
    if (!wanted_ || !wanted_->named() || is_wanted) return text;
    const std::string near = nearest_name(wanted_->name, names);
    return near.empty()
               ? text
               : text + fmt::format(": is \"{}\" meant to be \"{}\"?", near, wanted_->name);
  }

  const Statuses& statuses_;
  const std::optional<Key>& wanted_;
  bool times_;
  bool all_asked_;
  RankSet seen_{};
  struct Line {
    std::string text;
    std::string kind;
    RankSet ranks;
  };
  std::vector<Line> lines_{};
};

std::string others_in_words(const StalledGroup& late) {
  if (late.lags.size() < 2) return {};
  const std::size_t others = late.lags.size() - 1;
  std::string text =
      fmt::format("; {} more {} for the same ranks:", others, others == 1 ? "waits" : "wait");
  for (std::size_t i = 1; i <= std::min(others, max_names); ++i)
    text += fmt::format("{} {}", i == 1 ? "" : ",",
                        operation_in_words(late.lags[i].type, late.lags[i].key));
  return text + (others > max_names ? ", ..." : "");
}

/// Starts with all ranks that wait, and removes ranks that may continue until no more can be
/// removed. The remaining ranks wait for each other.
class DeadlockFinder {
 public:
  DeadlockFinder(const Statuses& statuses, const MembersOf& members_of)
      : statuses_(statuses), members_of_(members_of) {
    for (const auto& [rank, status] : statuses_) {
      const RankSet self = RankSet::of(rank);
      if (status.blocked && status.pending > 0 && !status.silent() && !status.ended)
        waiting_.insert(self);
      if (status.pending > static_cast<int>(status.operations.size())) partly_known_.insert(self);
      for (const WaitingOperation& operation : status.operations) {
        if (operation.type == OperationType::join) joined_.insert(self);
        Asked& asked = asked_[operation.key];
        asked.type = operation.type;
        asked.by.insert(self);
        asked.waited = std::max(asked.waited, operation.waited);
      }
    }
  }

  std::optional<Blockade> find() {
    const RankSet world = members_of_(world_set);
    // If all ranks wait, no rank is left to release another, even if operations are not listed.
    if (waiting_ != world)
      while (release_one()) {
      }
    if (waiting_.count() < 2) return std::nullopt;
    Blockade blockade{waiting_, {}};
    for (const auto& [key, asked] : asked_) {
      if (asked.by.common(waiting_).empty()) continue;
      RankSet missing = missing_of(key, asked);
      if (!missing.empty())
        blockade.operations.push_back(
            {{Lag{key, asked.type, asked.by, asked.waited}}, std::move(missing)});
    }
    if (blockade.operations.empty()) return std::nullopt;
    std::ranges::sort(blockade.operations, {}, [](const StalledGroup& late) {
      const Lag& lag = late.lags.front();
      return std::tuple(lag.submitted.ranges().front().first, lag.key.name, lag.key.number);
    });
    return blockade;
  }

 private:
  struct Asked {
    OperationType type = OperationType::barrier;
    RankSet by{};
    std::chrono::milliseconds waited{};
  };

  [[nodiscard]] RankSet missing_of(const Key& key, const Asked& asked) const {
    RankSet missing = members_of_(key.set).without(asked.by);
    return asked.type == OperationType::join ? missing : missing.without(joined_);
  }

  /// True if the operation may complete although the waiting ranks submit nothing more. A rank
  /// whose operations are only partly known may have submitted it already.
  [[nodiscard]] bool may_complete(const Key& key) const {
    const RankSet needed = missing_of(key, asked_.at(key)).common(waiting_);
    return needed.without(partly_known_).empty();
  }

  /// Removes one rank that may continue from the waiting ranks. False if there is none.
  bool release_one() {
    for (const int rank : waiting_.to_vector()) {
      const RankStatus& status = statuses_.at(rank);
      if (!partly_known_.contains(rank) &&
          std::ranges::none_of(status.operations, [&](const WaitingOperation& operation) {
            return may_complete(operation.key);
          }))
        continue;
      waiting_ = waiting_.without(RankSet::of(rank));
      return true;
    }
    return false;
  }

  const Statuses& statuses_;
  const MembersOf& members_of_;
  RankSet waiting_{};
  RankSet joined_{};
  RankSet partly_known_{};  // ranks whose status does not list all pending operations
  std::unordered_map<Key, Asked, KeyHash> asked_{};
};

}  // namespace

std::string in_seconds(milliseconds time) {
  return fmt::format("{:.1f} s", static_cast<double>(time.count()) / 1000.0);
}

std::string describe(const RankSet& ranks, const Statuses& statuses,
                     const std::optional<Key>& wanted, bool times, bool all_asked) {
  StatusLines lines(statuses, wanted, times, all_asked);
  lines.add(ranks);
  return lines.text();
}

WaitEnds find_wait_ends(const RankSet& awaited, const Statuses& statuses) {
  WaitEnds ends;
  RankSet seen;
  RankSet next = awaited;
  while (!next.empty()) {
    seen.insert(next);
    RankSet further;
    for (const int rank : next.to_vector()) {
      const RankSet self = RankSet::of(rank);
      const auto found = statuses.find(rank);
      if (found == statuses.end()) {
        ends.unknown.insert(self);
        continue;
      }
      const RankStatus& status = found->second;
      if (status.silent()) {
        ends.silent.insert(self);
      } else if (!status.batch.empty() && !status.awaited.empty()) {
        further.insert(status.awaited);
      } else if (!status.waits || status.pending == 0) {
        ends.late.insert(self);
      }
    }
    next = further.without(seen);
  }
  return ends;
}

RankSet culprits(const RankSet& awaited, const Statuses& statuses) {
  WaitEnds ends = find_wait_ends(awaited, statuses);
  RankSet blamed = std::move(ends.silent);
  blamed.insert(ends.unknown);
  if (blamed.empty()) return awaited;
  blamed.insert(ends.late);
  return blamed;
}

std::string report_late(const StalledGroup& late, const Statuses& statuses, bool times) {
  const Lag& lag = late.lags.front();
  std::string text =
      fmt::format("{} has waited {}: submitted by {}, missing {}",
                  operation_in_words(lag.type, lag.key), times ? in_seconds(lag.waited) : "",
                  ranks_in_words(lag.submitted), ranks_in_words(late.missing));
  if (times) text += others_in_words(late);
  if (!late.conflict.empty())
    text += "\n  the ranks that have submitted it disagree already: " + late.conflict;
  // If most ranks have not submitted the operation, its own name may be the misspelled one, so no
  // similar names are suggested.
  const bool expected = lag.submitted.count() >= late.missing.count();
  return text +
         describe(late.missing, statuses, expected ? std::optional(lag.key) : std::nullopt, times);
}

std::optional<Blockade> find_deadlock(const Statuses& statuses, const MembersOf& members_of) {
  return DeadlockFinder(statuses, members_of).find();
}

std::string report_deadlock(const Blockade& blockade, const Statuses& statuses) {
  std::string text = fmt::format(
      "likely deadlock: {} wait for each other, and nothing that they wait for can complete",
      ranks_in_words(blockade.ranks));
  for (std::size_t i = 0; i < std::min(blockade.operations.size(), max_lines); ++i) {
    const StalledGroup& late = blockade.operations[i];
    const Lag& lag = late.lags.front();
    text += fmt::format("\n  {} is missing on {}", operation_in_words(lag.type, lag.key),
                        ranks_in_words(late.missing));
  }
  if (blockade.operations.size() > max_lines) text += "\n  ...";
  const std::optional<Key> wanted =
      blockade.operations.empty() ? std::nullopt
                                  : std::optional(blockade.operations.front().lags.front().key);
  return text + describe(blockade.ranks, statuses, wanted);
}

}  // namespace kolo::internal::negotiation
