// SPDX-License-Identifier: Apache-2.0
#include "binding.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <stdexcept>

namespace kolorun {

std::vector<std::vector<int>> share_processors(Binding binding, const node::Processors& host,
                                               std::span<const int> own, int count) {
  std::vector<std::vector<int>> shares(static_cast<std::size_t>(count));
  if (binding == Binding::none || own.empty()) return shares;
  const bool by_core = binding == Binding::core;
  const auto groups = by_core ? host.cores_of(own) : host.numa_nodes_of(own);
  if (by_core && groups.size() < shares.size())
    throw std::runtime_error(
        fmt::format("--bind-to core: {} processes, but kolorun may use only {} {} of this host; "
                    "start fewer here, or use --bind-to none",
                    count, groups.size(), groups.size() == 1 ? "core" : "cores"));
  for (std::size_t i = 0; i < shares.size(); ++i) {
    // Neighbors get neighboring groups, and all groups are used if there are enough processes.
    const std::size_t begin = i * groups.size() / shares.size();
    const std::size_t end = by_core ? (i + 1) * groups.size() / shares.size() : begin + 1;
    for (std::size_t group = begin; group < end; ++group)
      shares[i].insert(shares[i].end(), groups[group].begin(), groups[group].end());
  }
  return shares;
}

}  // namespace kolorun
