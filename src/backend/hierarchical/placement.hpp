// How the ranks of a batch lie on hosts.
#pragma once

#include <span>
#include <vector>

namespace kolo::backend::hierarchical {

/// The same on all ranks, since all know the same topology.
struct Placement {
  std::vector<std::vector<int>> hosts{};  // the ranks of each, ascending

  /// Hosts are ordered by the lowest rank that they have in the world, which `node_of` tells.
  [[nodiscard]] static Placement of(std::span<const int> ranks, std::span<const int> node_of);

  /// The place of the host of `rank`; -1 if no host has it.
  [[nodiscard]] int host_of(int rank) const;
  /// So many ranks of every host own a slice: as many as the host with the fewest has.
  [[nodiscard]] int owners() const;
  /// More than one host, and more than one rank on some.
  [[nodiscard]] bool has_levels() const;
};

}  // namespace kolo::backend::hierarchical
