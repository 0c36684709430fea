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
  for (auto& [node, on_node] : by_node) placement.hosts.push_back(std::move(on_node));
  return placement;
}

int Placement::host_of(int rank) const {
  const auto found = std::ranges::find_if(hosts, [=](const std::vector<int>& ranks) {
    return std::ranges::find(ranks, rank) != ranks.end();
  });
  return found == hosts.end() ? -1 : static_cast<int>(found - hosts.begin());
}

std::pair<int, int> Placement::host_sizes() const {
  const auto [least, most] = std::ranges::minmax_element(hosts, {}, &std::vector<int>::size);
  return {static_cast<int>(least->size()), static_cast<int>(most->size())};
}

bool Placement::shares_hosts() const {
  return std::ranges::any_of(hosts, [](const std::vector<int>& ranks) { return ranks.size() > 1; });
}

Counterparts::Counterparts(std::span<const int> ranks, const Placement& placement, int own_rank)
    : own_host_(placement.host_of(own_rank)) {
  // `ranks` is ascending, as are the ranks of a host.
  const auto index_of = [&](int rank) {
    return static_cast<int>(std::ranges::lower_bound(ranks, rank) - ranks.begin());
  };
  for (const std::vector<int>& host : placement.hosts) {
    std::vector<int>& indices = hosts_.emplace_back();
    for (const int rank : host) indices.push_back(index_of(rank));
  }
  own_place_ = static_cast<int>(std::ranges::find(local_peers(), index_of(own_rank)) -
                                local_peers().begin());
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

const Placement& PlacementCache::of(std::span<const int> ranks) {
  const auto found = std::ranges::find_if(
      kept_, [&](const Kept& kept) { return std::ranges::equal(kept.ranks, ranks); });
  if (found != kept_.end()) return found->placement;
  Kept added{{ranks.begin(), ranks.end()}, Placement::of(ranks, node_of_)};
  if (kept_.size() < max_kept) return kept_.emplace_back(std::move(added)).placement;
  Kept& replaced = kept_[oldest_];
  oldest_ = (oldest_ + 1) % max_kept;
  replaced = std::move(added);
  return replaced.placement;
}

Owners owners_of(int slice, int host, const Placement& placement) {
  Owners owners{.own = host};
  for (const std::vector<int>& ranks : placement.hosts)
    owners.ranks.push_back(ranks[static_cast<std::size_t>(slice) % ranks.size()]);
  return owners;
}

}  // namespace kolo::internal::backend::internode
