// SPDX-License-Identifier: Apache-2.0
// The placement of a batch's ranks on hosts, and the ranks that reduce a slice between hosts.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace kolo::internal::backend::internode {

/// The hosts of a batch. The same on all ranks, since all know the same topology.
struct Placement {
  std::vector<std::vector<int>> hosts{};  // the ranks of each host, ascending
  std::vector<int> host_of_ranks{};       // by rank; -1 for ranks that take no part
  std::pair<int, int> host_sizes{};       // the numbers of ranks on the smallest and largest host

  /// Orders hosts by their lowest rank in the world. `node_of` maps each rank to that rank.
  [[nodiscard]] static Placement of(std::span<const int> ranks, std::span<const int> node_of);

  /// The index of the host of `rank`; -1 if no host has it.
  [[nodiscard]] int host_of(int rank) const {
    const auto place = static_cast<std::size_t>(rank);
    return place < host_of_ranks.size() ? host_of_ranks[place] : -1;
  }
  [[nodiscard]] bool spans_hosts() const { return hosts.size() > 1; }
  /// True if a host has several of the ranks.
  [[nodiscard]] bool shares_hosts() const { return host_sizes.second > 1; }
};

/// Divides a host's traffic with other hosts among its ranks: each takes care of the ranks of other
/// hosts whose place on their host equals its own, modulo the number of its host's ranks. So the
/// network carries everything once for each host, and the ranks of a host have about equal work.
/// Ranks are identified by their index in the batch, hosts and places by their number.
class Counterparts {
 public:
  /// `ranks` are the ranks of the batch.
  Counterparts(std::span<const int> ranks, const Placement& placement, int own_rank);

  [[nodiscard]] int hosts() const { return static_cast<int>(hosts_.size()); }
  [[nodiscard]] int own_host() const { return own_host_; }
  /// True if all hosts have equally many of the ranks.
  [[nodiscard]] bool are_even() const { return even_; }
  /// The ranks of this rank's host.
  [[nodiscard]] std::span<const int> local_peers() const { return on(own_host_); }
  /// The rank of `host` that takes care of this rank.
  [[nodiscard]] int on_behalf_of_this(int host) const {
    return on(host)[static_cast<std::size_t>(own_place_) % on(host).size()];
  }
  /// The ranks of `host` in the care of the rank at `place` of this host.
  [[nodiscard]] std::vector<int> cared_for(int place, int host) const;
  /// The same for all other hosts, starting with the next host.
  [[nodiscard]] std::vector<int> cared_for(int place) const;

 private:
  [[nodiscard]] std::span<const int> on(int host) const {
    return hosts_[static_cast<std::size_t>(host)];
  }

  std::vector<std::vector<int>> hosts_{};
  int own_host_;
  int own_place_ = 0;
  bool even_;
};

/// Keeps placements and counterparts for lists of ranks. Jobs reduce over few lists, batch after
/// batch; with thousands of ranks, finding them costs more than a small allreduce. One thread at a
/// time.
class PlacementCache {
 public:
  static constexpr std::size_t max_kept = 16;

  /// For `node_of`, see `Placement::of`.
  PlacementCache(std::vector<int> node_of, int own_rank)
      : node_of_(std::move(node_of)), own_rank_(own_rank) {}

  /// The result is valid until the next call.
  [[nodiscard]] const Placement& of(std::span<const int> ranks) { return find(ranks).placement; }
  /// The counterparts of this rank, which must be among the ranks.
  [[nodiscard]] std::shared_ptr<const Counterparts> counterparts(std::span<const int> ranks);
  [[nodiscard]] std::size_t size() const { return kept_.size(); }

 private:
  struct Kept {
    std::vector<int> ranks{};
    Placement placement{};
    std::shared_ptr<const Counterparts> counterparts{};  // null before they are needed
  };

  [[nodiscard]] Kept& find(std::span<const int> ranks);

  std::vector<int> node_of_;
  int own_rank_;
  std::vector<Kept> kept_{};
  std::size_t oldest_ = 0;  // the entry to replace next once the cache is full
};

/// The owners of a slice: one rank of each host, in the order of the hosts. At least two.
struct Owners {
  std::vector<int> ranks{};
  int own = 0;  // the place of this rank

  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
  /// The rank of an owner. Places wrap around.
  [[nodiscard]] int rank(int owner) const {
    return ranks[static_cast<std::size_t>((owner + size()) % size())];
  }
};

/// The owners of the slice with this number. On each host, the ranks own the slices in turn. `host`
/// is the host of this rank.
[[nodiscard]] Owners owners_of(int slice, int host, const Placement& placement);

/// The ranks with the same place on their hosts as the rank with the index `own` in `ranks`. None
/// if hosts have different numbers of ranks, or if there are at most `few_hosts`, among which
/// messages to all at once take no longer than a few messages in sequence.
[[nodiscard]] Owners owners_of_place(std::span<const int> ranks, int own,
                                     const Counterparts& counterparts, int few_hosts);

}  // namespace kolo::internal::backend::internode
