// SPDX-License-Identifier: Apache-2.0
// Divides the ranks of a batch into groups by NUMA node.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace kolo::internal::backend::shm {

/// The participating ranks by their index on the host, in the order of the batch's `ranks`.
using LocalRanks = std::vector<int>;

/// Up to this many ranks may each reduce a short piece alone. They always form one level, so that
/// an element gets the same bits in a short tensor as in a long one.
inline constexpr int max_ranks_alone = 8;

/// The NUMA nodes of a host's ranks, by index on the host, and the limits for dividing by them. The
/// same on all ranks.
struct NumaNodes {
  std::vector<int> of_ranks{};           // -1: none or unknown; empty: all unknown
  int max_ranks_flat = max_ranks_alone;  // batches of up to this many ranks are not divided
  int min_ranks_of_group = 2;
  int max_unevenness = 2;  // max. ratio of the largest to the smallest group
};

/// The ranks of a batch on the same NUMA node form a group. Ranks are identified by their index in
/// the batch's `ranks`, ascending in each group; groups are ordered by the numbers of their nodes.
class Groups {
 public:
  /// Groups the ranks of a batch. `local_ranks` has their indices on the host; `own` is the index
  /// of this rank among them. Returns nothing if the ranks are not divided: if they are few, a
  /// rank's node is not known, all are on one node, a node has too few of them, or the groups would
  /// be too uneven.
  [[nodiscard]] static std::optional<Groups> of(std::span<const int> local_ranks, int own,
                                                const NumaNodes& nodes) {
    if (nodes.of_ranks.empty() || std::ssize(local_ranks) <= nodes.max_ranks_flat)
      return std::nullopt;
    std::map<int, std::vector<int>> by_node;
    for (std::size_t rank = 0; rank < local_ranks.size(); ++rank)
      by_node[nodes.of_ranks[static_cast<std::size_t>(local_ranks[rank])]].push_back(
          static_cast<int>(rank));
    if (by_node.size() < 2 || by_node.contains(-1)) return std::nullopt;
    std::vector<std::vector<int>> groups;
    for (auto& [node, ranks] : by_node) groups.push_back(std::move(ranks));
    // The size of the smallest group decides how many ranks of every group reduce.
    const auto [smallest, largest] =
        std::ranges::minmax_element(groups, {}, &std::vector<int>::size);
    if (std::cmp_less(smallest->size(), nodes.min_ranks_of_group) ||
        largest->size() > smallest->size() * static_cast<std::size_t>(nodes.max_unevenness))
      return std::nullopt;
    return Groups(std::move(groups), own);
  }

  [[nodiscard]] int size() const { return static_cast<int>(groups_.size()); }
  [[nodiscard]] const std::vector<int>& ranks(int group) const {
    return groups_[static_cast<std::size_t>(group)];
  }
  /// The group of this rank.
  [[nodiscard]] int own() const { return own_; }
  /// The number of ranks of each group that own a slice: the size of the smallest group.
  [[nodiscard]] int owners() const {
    return static_cast<int>(std::ranges::min_element(groups_, {}, &std::vector<int>::size)->size());
  }
  /// The owners of this rank's slice in the other groups, in the order of the groups; empty if this
  /// rank owns no slice.
  [[nodiscard]] std::vector<int> counterparts() const {
    std::vector<int> found;
    if (static_cast<int>(place_) >= owners()) return found;
    for (int group = 0; group < size(); ++group)
      if (group != own_) found.push_back(ranks(group)[place_]);
    return found;
  }

 private:
  Groups(std::vector<std::vector<int>> groups, int own_rank) : groups_(std::move(groups)) {
    for (int group = 0; group < size(); ++group) {
      const auto found = std::ranges::lower_bound(ranks(group), own_rank);
      if (found == ranks(group).end() || *found != own_rank) continue;
      own_ = group;
      place_ = static_cast<std::size_t>(found - ranks(group).begin());
    }
  }

  std::vector<std::vector<int>> groups_;
  int own_ = 0;
  std::size_t place_ = 0;  // the place of this rank in its group
};

}  // namespace kolo::internal::backend::shm
