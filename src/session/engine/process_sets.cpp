// SPDX-License-Identifier: Apache-2.0
#include "session/engine/process_sets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/format.hpp"
#include "kolo/error.hpp"

namespace kolo::internal::session {
namespace {

std::vector<int> first_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

int place_of(int rank, const std::vector<int>& ranks) {
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), rank);
  return found != ranks.end() && *found == rank ? static_cast<int>(found - ranks.begin()) : -1;
}

}  // namespace

ProcessSets::ProcessSets(std::uint64_t session, int rank, int size)
    : session_(session), rank_(rank), world_{session, world_set, first_ranks(size), rank} {}

std::string ProcessSets::why_unusable(const ProcessSet& set) const {
  const detail::ProcessSetData* data = set.data().get();
  if (data == nullptr) return {};
  if (data->session != session_) return "is of an earlier session";
  return data->removed ? "was removed" : "";
}

void ProcessSets::require_usable(const ProcessSet& set, const std::string& what,
                                 const std::string& name) const {
  if (const std::string why = why_unusable(set); !why.empty())
    throw InvalidArgument(fmt::format("{}: process set {} {}", what, set.data()->id, why), name,
                          {rank_});
}

ProcessSets::View ProcessSets::find_for_member(const ProcessSet& set, OperationType type,
                                               const std::string& name) const {
  const auto what = [&] { return fmt::format("{} \"{}\"", to_string(type), name); };
  if (!why_unusable(set).empty()) require_usable(set, what(), name);
  const detail::ProcessSetData& data = set.data() ? *set.data() : world_;
  if (data.own_place < 0)
    throw InvalidArgument(
        fmt::format("{}: rank {} is no member of process set {}, which has ranks {}", what(), rank_,
                    data.id, to_string(RankSet::of(data.ranks))),
        name, {rank_});
  return {data.id, data.ranks, data.own_place};
}

ProcessSet ProcessSets::add(SetId id, const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  auto& data = sets_[id];
  if (!data) data.reset(new detail::ProcessSetData{session_, id, ranks, place_of(rank_, ranks)});
  return ProcessSet(data);
}

void ProcessSets::remove(SetId id) {
  const std::lock_guard lock(mutex_);
  const auto found = sets_.find(id);
  if (found == sets_.end()) return;
  found->second->removed = true;
  sets_.erase(found);
}

}  // namespace kolo::internal::session
