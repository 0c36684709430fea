// SPDX-License-Identifier: Apache-2.0
#include "session/pace/pace_monitor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "base/log.hpp"
#include "base/rank_set.hpp"
#include "diagnostics/status_text.hpp"
#include "kolo/error.hpp"
#include "negotiation/wire/codec.hpp"
#include "transport/machine.hpp"

namespace kolo::internal::session {
namespace {

// Even if no window is over: what a rank waits for may have changed.
constexpr std::chrono::seconds longest_silence{1};

// Every rank reports more often.
constexpr std::chrono::seconds old{5};

// A rank that is late again after this time is worth another warning.
constexpr std::chrono::minutes forgiven{10};

constexpr std::size_t longest_text = 300;

// A report does not grow with the number of ranks: few operations can be the slow one.
constexpr std::size_t max_operations = 64;

void add(std::vector<OperationPace>& all, const OperationPace& more) {
  const auto same = [&](const OperationPace& one) {
    return one.set == more.set && one.name == more.name;
  };
  const auto found = std::ranges::find_if(all, same);
  if (found == all.end()) return all.push_back(more);
  found->sum += more.sum;
  if (more.longest <= found->longest) return;
  found->longest = more.longest;
  found->slowest = more.slowest;
}

/// Who waits for whom, if some ranks have waited for long and others have not.
std::string stall_in_words(const PaceReport& all, int size) {
  std::vector<int> waiting;
  std::string what;
  for (const RankPace& pace : all.ranks) {
    if (pace.waits_for.empty()) continue;
    if (what.empty()) what = pace.waits_for;
    waiting.push_back(pace.rank);
  }
  if (waiting.empty()) return "";
  if (static_cast<int>(waiting.size()) == size) return "all ranks wait: " + what;
  std::vector<int> others;
  for (int rank = 0; rank < size; ++rank)
    if (std::ranges::find(waiting, rank) == waiting.end()) others.push_back(rank);
  return fmt::format("{} wait{} for {}: {}", ranks_in_words(RankSet::of(waiting)),
                     waiting.size() == 1 ? "s" : "", ranks_in_words(RankSet::of(others)), what);
}

}  // namespace

PaceMonitor::PaceMonitor(const Settings& settings, const Place& place,
                         transport::Transport& transport, diagnostics::Recorder& recorder,
                         const SessionClock& clock)
    : recorder_(recorder),
      transport_(transport),
      clock_(clock),
      place_(place),
      own_{.ranks = {{.rank = place.rank, .host = transport::host_name()}}},
      search_(settings.straggler_warning) {
  if (place_.parent >= 0 || settings.status_file.empty()) return;
  try {
    file_ = std::make_unique<diagnostics::StatusFile>(settings.status_file);
  } catch (const BackendError& error) {
    warn(error.what());
  }
}

void PaceMonitor::check(const std::function<std::string()>& wait_in_words) {
  // A parent that does not read, because it is stopped, would find all reports when it goes on.
  if (place_.parent >= 0 && !transport_.flushed()) return;
  std::optional<PaceReport> window = recorder_.take_pace();
  if (!window && clock_.now() - reported_at_ < longest_silence) return;
  RankPace& own = own_.ranks.front();
  if (window) {
    RankPace& its = window->ranks.front();
    its.rank = own.rank;
    its.host = std::move(own.host);
    for (OperationPace& pace : window->operations) pace.slowest = its.rank;
    own_ = *std::move(window);
    const TimePoint before = std::exchange(renewed_at_, clock_.now());
    if (before != TimePoint{}) between_ = renewed_at_ - before;
  } else if (own.steps > 0 && clock_.now() - renewed_at_ > old + 3 * between_) {
    own.steps = 0;  // what was true of other work says nothing about this
    own_.operations.clear();
  }
  own_.ranks.front().waits_for = wait_in_words().substr(0, longest_text);
  reported_at_ = clock_.now();
  if (place_.size == 1 && file_ == nullptr) return;
  if (place_.parent < 0) return judge(merged());
  transport_.send(place_.parent, negotiation::encode(place_.session, merged()));
}

PaceReport PaceMonitor::merged() {
  PaceReport all = own_;
  // Ranks that have left report no more.
  std::erase_if(below_, [&](const auto& one) { return clock_.now() - one.second.at > old; });
  for (const auto& [child, received] : below_) {
    const PaceReport& report = received.report;
    all.ranks.insert(all.ranks.end(), report.ranks.begin(), report.ranks.end());
    for (const OperationPace& pace : report.operations) add(all.operations, pace);
  }
  std::ranges::sort(all.ranks, {}, &RankPace::rank);
  std::ranges::sort(all.operations, std::ranges::greater(), &OperationPace::longest);
  if (all.operations.size() > max_operations) all.operations.resize(max_operations);
  return all;
}

void PaceMonitor::judge(const PaceReport& all) {
  JobPace job{.session = place_.session, .size = place_.size, .ranks = all.ranks};
  if (const std::optional<Straggler> straggler = search_.find(all, clock_.now())) {
    job.stragglers.push_back(*straggler);
    job.verdict = diagnostics::to_string(*straggler);
    const auto [last, is_new] = stragglers_.try_emplace(straggler->rank, clock_.now());
    if (is_new || clock_.now() - last->second > forgiven) {
      log_limited(LogLevel::warning, "stragglers", job.verdict);
      recorder_.note(diagnostics::EventKind::stall, job.verdict, clock_.real());
    }
    last->second = clock_.now();
  }
  if (file_ == nullptr) return;
  if (const std::string stall = stall_in_words(all, place_.size); !stall.empty())
    job.verdict = stall;
  if (job.verdict.empty()) job.verdict = search_.in_words(all);
  file_->write(file_->path().ends_with(".prom") ? diagnostics::to_metrics(job)
                                                : diagnostics::to_json(job));
}

}  // namespace kolo::internal::session
