// How the ranks of a batch lie on hosts, and which of them reduce a slice between hosts.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace kolo::internal::backend::internode {

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

/// Those who own the same slice, one rank of each host, in the order of the hosts. At least two.
struct Owners {
  std::vector<int> ranks{};
  int own = 0;  // this rank's place

  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
  /// The rank of an owner; places go round.
  [[nodiscard]] int rank(int owner) const {
    return ranks[static_cast<std::size_t>((owner + size()) % size())];
  }
};

/// Those of the slice that `rank` owns; none if it owns none.
[[nodiscard]] std::optional<Owners> owners_with(int rank, const Placement& placement);

}  // namespace kolo::internal::backend::internode
