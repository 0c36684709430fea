// SPDX-License-Identifier: Apache-2.0
// The NUMA nodes among which the ranks of a batch are divided.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace kolo::internal::backend::shm {

/// Indices on the host of the ranks that take part, in the order of the batch's `ranks`.
using LocalRanks = std::vector<int>;

/// Up to so many ranks may reduce a short piece each for itself. They are one level, so that an
/// element of a short tensor gets the same bits as one of a long tensor.
inline constexpr int max_ranks_alone = 8;

/// The NUMA nodes of the ranks of a host, by index on the host, and when they matter. The same on
/// all ranks.
struct NumaNodes {
  std::vector<int> of_ranks{};           // -1: none, or not known; empty: none of them is known
  int max_ranks_flat = max_ranks_alone;  // so many ranks of a batch are never divided
  int min_ranks_of_group = 2;
  int max_unevenness = 2;  // the largest group has at most so many times the ranks of the smallest
};

/// The ranks of a batch on the same NUMA node are a group. Ranks are known by their index in the
/// batch's `ranks`, and are ascending in each group; groups are in the order of the nodes' numbers.
class Groups {
 public:
  /// `local_ranks` are the indices on the host of the batch's ranks, `own` is the index of this
  /// rank among them. None if the ranks are not divided: because they are few, a rank's node is not
  /// known, all are on one node, or a node has too few of them.
  [[nodiscard]] static std::optional<Groups> of(std::span<const int> local_ranks, int own,
                                                const NumaNodes& nodes);

  [[nodiscard]] int size() const { return static_cast<int>(groups_.size()); }
  [[nodiscard]] const std::vector<int>& ranks(int group) const {
    return groups_[static_cast<std::size_t>(group)];
  }
  /// The group of this rank.
  [[nodiscard]] int own() const { return own_; }
  /// The number of ranks of every group that own a slice: the size of the smallest group.
  [[nodiscard]] int owners() const;
  /// The owners of this rank's slice in the other groups, in the order of the groups; empty if this
  /// rank owns none.
  [[nodiscard]] std::vector<int> counterparts() const;

 private:
  Groups(std::vector<std::vector<int>> groups, int own_rank);

  std::vector<std::vector<int>> groups_;
  int own_ = 0;
  std::size_t place_ = 0;  // of this rank in its group
};

}  // namespace kolo::internal::backend::shm
