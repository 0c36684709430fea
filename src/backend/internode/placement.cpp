// SPDX-License-Identifier: Apache-2.0
#include "backend/internode/placement.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace kolo::internal::backend::internode {

Placement Placement::of(std::span<const int> ranks, std::span<const int> node_of) {
  std::map<int, std::vector<int>> by_node;
  for (const int rank : ranks) by_node[node_of[static_cast<std::size_t>(rank)]].push_back(rank);
  Placement placement;
  if (!ranks.empty())
    placement.host_of_ranks.assign(static_cast<std::size_t>(ranks.back()) + 1, -1);
  for (auto& [node, on_node] : by_node) {
    for (const int rank : on_node)
      placement.host_of_ranks[static_cast<std::size_t>(rank)] =
          static_cast<int>(placement.hosts.size());
    placement.hosts.push_back(std::move(on_node));
  }
  if (placement.hosts.empty()) return placement;
  const auto [least, most] =
      std::ranges::minmax_element(placement.hosts, {}, &std::vector<int>::size);
  placement.host_sizes = {static_cast<int>(least->size()), static_cast<int>(most->size())};
  return placement;
}

/// The ranks of the batch are ascending, as are those of a host.
Counterparts::Counterparts(std::span<const int> ranks, const Placement& placement, int own_rank)
    : hosts_(placement.hosts.size()),
      own_host_(placement.host_of(own_rank)),
      even_(placement.host_sizes.first == placement.host_sizes.second) {
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    auto& host = hosts_[static_cast<std::size_t>(placement.host_of(ranks[index]))];
    if (ranks[index] == own_rank) own_place_ = static_cast<int>(host.size());
    host.push_back(static_cast<int>(index));
  }
}

/// On a host with more ranks than this one, several ranks fall to the same place.
std::vector<int> Counterparts::cared_for(int place, int host) const {
  std::vector<int> found;
  for (auto other = static_cast<std::size_t>(place); other < on(host).size();
       other += local_peers().size())
    found.push_back(on(host)[other]);
  return found;
}

std::vector<int> Counterparts::cared_for(int place) const {
  std::vector<int> found;
  for (int distance = 1; distance < hosts(); ++distance) {
    const std::vector<int> there = cared_for(place, (own_host_ + distance) % hosts());
    found.insert(found.end(), there.begin(), there.end());
  }
  return found;
}

PlacementCache::Kept& PlacementCache::find(std::span<const int> ranks) {
  const auto found = std::ranges::find_if(
      kept_, [&](const Kept& kept) { return std::ranges::equal(kept.ranks, ranks); });
  if (found != kept_.end()) return *found;
  Kept added{{ranks.begin(), ranks.end()}, Placement::of(ranks, node_of_), {}};
  if (kept_.size() < max_kept) return kept_.emplace_back(std::move(added));
  Kept& replaced = kept_[oldest_];
  oldest_ = (oldest_ + 1) % max_kept;
  replaced = std::move(added);
  return replaced;
}

std::shared_ptr<const Counterparts> PlacementCache::counterparts(std::span<const int> ranks) {
  Kept& kept = find(ranks);
  if (kept.counterparts == nullptr)
    kept.counterparts = std::make_shared<const Counterparts>(ranks, kept.placement, own_rank_);
  return kept.counterparts;
}

Owners owners_of(int slice, int host, const Placement& placement) {
  Owners owners{.own = host};
  for (const std::vector<int>& ranks : placement.hosts)
    owners.ranks.push_back(ranks[static_cast<std::size_t>(slice) % ranks.size()]);
  return owners;
}

Owners owners_of_place(std::span<const int> ranks, int own, const Counterparts& counterparts,
                       int few_hosts) {
  Owners owners;
  if (!counterparts.are_even() || counterparts.hosts() <= few_hosts) return owners;
  owners.own = counterparts.own_host();
  for (int host = 0; host < counterparts.hosts(); ++host) {
    const int index = host == owners.own ? own : counterparts.on_behalf_of_this(host);
    owners.ranks.push_back(ranks[static_cast<std::size_t>(index)]);
  }
  return owners;
}

}  // namespace kolo::internal::backend::internode
