// Who reduces a slice between hosts.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "backend/hierarchical/placement.hpp"

namespace kolo::backend::hierarchical {

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

}  // namespace kolo::backend::hierarchical
