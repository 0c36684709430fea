// SPDX-License-Identifier: Apache-2.0
#include "activity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace diagnose {
namespace {

constexpr std::size_t shown_by_default = 10;
constexpr std::int64_t late_part = 10;  // of a step: so much is late

using Name = std::pair<std::int64_t, std::string>;  // set, name

/// The set, the name and the batch: the same on all ranks that have executed the operation.
using OperationKey = std::tuple<std::int64_t, std::string, std::int64_t>;

OperationKey key_of(const RunOperation& operation) {
  return {operation.set, operation.name, operation.batch};
}

/// Moves the times of `run` to the clock of `reference`: the ranks find out at the same time that
/// they have agreed on an operation. On one host this changes next to nothing.
void align(RankRun& run, const RankRun& reference) {
  std::map<OperationKey, std::int64_t> agreed;
  for (const RunOperation& operation : reference.operations)
    if (operation.batch >= 0) agreed.emplace(key_of(operation), operation.agreed);
  std::vector<std::int64_t> differences;
  for (const RunOperation& operation : run.operations)
    if (const auto found = agreed.find(key_of(operation)); found != agreed.end())
      differences.push_back(operation.agreed - found->second);
  if (differences.empty()) return;
  const auto middle = differences.begin() + static_cast<std::ptrdiff_t>(differences.size() / 2);
  std::ranges::nth_element(differences, middle);
  for (RunOperation& operation : run.operations)
    for (std::int64_t* const time : {&operation.begin, &operation.agreed, &operation.end})
      *time -= *middle;
}

/// The operation that begins the steps: the first name that recurs as often as most names do.
std::optional<Name> find_step_name(const RankRun& run) {
  std::map<Name, std::size_t> counts;
  for (const RunOperation& operation : run.operations)
    if (operation.batch >= 0) ++counts[{operation.set, operation.name}];
  std::vector<std::size_t> recurring;
  for (const auto& [name, count] : counts)
    if (count > 1) recurring.push_back(count);
  if (recurring.empty()) return std::nullopt;
  const auto middle = recurring.begin() + static_cast<std::ptrdiff_t>(recurring.size() / 2);
  std::ranges::nth_element(recurring, middle);
  for (const RunOperation& operation : run.operations) {
    const Name name{operation.set, operation.name};
    if (operation.batch >= 0 && counts[name] == *middle) return name;
  }
  return std::nullopt;
}

/// The whole time of all runs.
Span whole_of(const std::vector<RankRun>& runs) {
  Span whole{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()};
  for (const RankRun& run : runs)
    for (const RunOperation& operation : run.operations) {
      whole.begin = std::min(whole.begin, operation.begin);
      whole.end = std::max(whole.end, operation.end);
    }
  if (whole.end < whole.begin) throw std::runtime_error("the files have no operations");
  whole.end = std::max(whole.end, whole.begin + 1);
  return whole;
}

std::vector<Span> find_steps(const RankRun& run, const Span& whole, std::string& step_name) {
  const std::optional<Name> name = find_step_name(run);
  if (!name) return {whole};
  step_name = name->second;
  std::vector<Span> steps;
  for (const RunOperation& operation : run.operations) {
    if (operation.batch < 0 || Name{operation.set, operation.name} != *name) continue;
    if (!steps.empty()) steps.back().end = operation.agreed;
    steps.push_back({operation.agreed, whole.end});
  }
  std::erase_if(steps, [](const Span& step) { return step.length() <= 0; });
  return steps.empty() ? std::vector<Span>{whole} : steps;
}

/// When the program waited in Kolo, as far as its operations show: from a submission until all
/// operations had ended, if that was before the next submission. While others are pending, the
/// program has not waited for all, and most likely computes.
std::vector<Span> find_waiting(const RankRun& run) {
  std::vector<const RunOperation*> by_end;
  for (const RunOperation& operation : run.operations) by_end.push_back(&operation);
  std::ranges::stable_sort(by_end, {}, &RunOperation::end);
  std::vector<Span> waiting;
  std::size_t ended = 0;
  for (std::size_t at = 0; at < run.operations.size(); ++at) {
    const bool is_last = at + 1 == run.operations.size();
    while (ended < by_end.size() && (is_last || by_end[ended]->end <= run.operations[at + 1].begin))
      ++ended;
    if (ended != at + 1) continue;
    const RunOperation& last = *by_end[ended - 1];
    if (last.end > run.operations[at].begin)
      waiting.push_back({run.operations[at].begin, last.end, last.name});
  }
  return unite(std::move(waiting));
}

RankActivity activity_of(const RankRun& run, const std::vector<Span>& steps) {
  std::vector<Span> executions;
  for (const RunOperation& operation : run.operations)
    executions.push_back({operation.agreed, operation.end, operation.name});
  const Span shown{steps.front().begin, steps.back().end};
  RankActivity activity{.rank = run.rank, .host = run.host, .dropped = run.dropped};
  activity.reducing = clip(unite(std::move(executions)), shown);
  activity.waiting = clip(find_waiting(run), shown);
  activity.computing = subtract({shown}, activity.waiting);
  return activity;
}

/// When the ranks have submitted an operation, and the moment of its agreement.
struct Submissions {
  std::map<std::size_t, std::int64_t> by_rank{};
  std::int64_t agreed = 0;
};

std::map<OperationKey, Submissions> find_submissions(const std::vector<RankRun>& runs) {
  std::map<OperationKey, Submissions> submissions;
  for (std::size_t rank = 0; rank < runs.size(); ++rank)
    for (const RunOperation& operation : runs[rank].operations) {
      if (operation.batch < 0 && !operation.is_open) continue;  // such as a barrier
      Submissions& all = submissions[key_of(operation)];
      all.by_rank.emplace(rank, operation.begin);
      all.agreed = std::max(all.agreed, operation.agreed);
    }
  return submissions;
}

/// A rank is late by the longest time for which an operation waited for it: by how much later than
/// the others, on average, it has submitted the operation.
void find_lateness(const std::vector<RankRun>& runs, Activity& activity) {
  const std::vector<Span>& steps = activity.steps;
  for (RankActivity& rank : activity.ranks) rank.lateness.assign(steps.size(), 0);
  for (const auto& [key, submissions] : find_submissions(runs)) {
    const auto after = std::ranges::lower_bound(steps, submissions.agreed, {}, &Span::begin);
    if (after == steps.begin() || submissions.agreed > steps.back().end) continue;
    const auto step = static_cast<std::size_t>(after - steps.begin() - 1);
    std::map<std::size_t, std::int64_t> by_rank = submissions.by_rank;
    // An open operation of all ranks may wait for those that lack it.
    const auto& [set, name, batch] = key;
    activity.is_cut_off |= batch < 0 && step + 1 == steps.size();
    if (batch < 0 && set == 0)
      for (std::size_t rank = 0; rank < runs.size(); ++rank)
        by_rank.try_emplace(rank, submissions.agreed);
    const auto others = static_cast<std::int64_t>(by_rank.size()) - 1;
    // Times since the step's begin: the sum of those of a clock that has run for long may not fit.
    std::int64_t sum = 0;
    for (auto& [rank, begin] : by_rank)
      sum += begin = std::max<std::int64_t>(begin - steps[step].begin, 0);
    for (const auto& [rank, begin] : by_rank)
      if (std::int64_t& late = activity.ranks[rank].lateness[step]; others > 0)
        late = std::max(late, begin - (sum - begin) / others);
  }
}

std::optional<LateRank> find_late_rank(const Activity& activity) {
  // A step that never ended is as long as somebody was patient.
  const std::size_t whole = activity.steps.size() - (activity.is_cut_off ? 1 : 0);
  if (whole == 0) return std::nullopt;
  const auto steps = static_cast<std::int64_t>(whole);
  LateRank latest{.step = (activity.steps[whole - 1].end - activity.steps.front().begin) / steps};
  for (const RankActivity& rank : activity.ranks) {
    std::int64_t sum = 0;
    for (std::size_t step = 0; step < whole; ++step) sum += rank.lateness[step];
    if (sum / steps > latest.by) latest = {rank.rank, sum / steps, latest.step};
  }
  if (latest.by * late_part < latest.step || latest.by == 0) return std::nullopt;
  return latest;
}

/// Leaves the steps of the range.
void choose_steps(Activity& activity, const StepRange& range) {
  std::vector<Span>& steps = activity.steps;
  activity.all_steps = steps.size();
  const std::size_t last = range.last == 0 ? steps.size() : range.last;
  const std::size_t first = range.first != 0          ? range.first
                            : last > shown_by_default ? last - shown_by_default + 1
                                                      : 1;
  if (first > last || last > steps.size())
    throw std::runtime_error(
        fmt::format("there are no steps {}:{}: the run has {}", first, last, steps.size()));
  activity.first_step = first;
  steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(last), steps.end());
  steps.erase(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(first - 1));
}

}  // namespace

std::optional<std::size_t> late_in(const Activity& activity, std::size_t step) {
  const auto latest = std::ranges::max_element(
      activity.ranks, {}, [step](const RankActivity& rank) { return rank.lateness[step]; });
  const std::int64_t late = latest->lateness[step];
  if (late <= 0 || late * late_part < activity.steps[step].length()) return std::nullopt;
  return static_cast<std::size_t>(latest - activity.ranks.begin());
}

Activity find_activity(std::vector<RankRun> runs, const StepRange& range) {
  std::ranges::sort(runs, {}, &RankRun::rank);
  for (RankRun& run : runs) align(run, runs.front());
  Activity activity;
  activity.steps = find_steps(runs.front(), whole_of(runs), activity.step_name);
  choose_steps(activity, range);
  for (const RankRun& run : runs) activity.ranks.push_back(activity_of(run, activity.steps));
  find_lateness(runs, activity);
  activity.late_rank = find_late_rank(activity);
  return activity;
}

}  // namespace diagnose
