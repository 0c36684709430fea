#include "backend/hierarchical/owners.hpp"

#include <algorithm>

namespace kolo::backend::hierarchical {

std::optional<Owners> owners_with(int rank, const Placement& placement) {
  Owners owners{.own = placement.host_of(rank)};
  const std::vector<int>& host = placement.hosts[static_cast<std::size_t>(owners.own)];
  const auto place = std::ranges::find(host, rank) - host.begin();
  if (place >= placement.owners()) return std::nullopt;
  for (const std::vector<int>& ranks : placement.hosts)
    owners.ranks.push_back(ranks[static_cast<std::size_t>(place)]);
  return owners;
}

}  // namespace kolo::backend::hierarchical
