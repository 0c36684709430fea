// SPDX-License-Identifier: Apache-2.0
// The distribution of the ranks of a batch over hosts, and the ranks that reduce a slice between
// hosts.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace kolo::internal::backend::internode {

/// The same on all ranks, since all know the same topology.
struct Placement {
  std::vector<std::vector<int>> hosts{};  // the ranks of each, ascending

  /// Hosts are ordered by their lowest rank in the world, which `node_of` has for each rank.
  [[nodiscard]] static Placement of(std::span<const int> ranks, std::span<const int> node_of);

  /// The place of the host of `rank`; -1 if no host has it.
  [[nodiscard]] int host_of(int rank) const;
  /// The ranks of the smallest and of the largest host.
  [[nodiscard]] std::pair<int, int> host_sizes() const;
  [[nodiscard]] bool spans_hosts() const { return hosts.size() > 1; }
  /// True if a host has several of the ranks.
  [[nodiscard]] bool shares_hosts() const;
};

/// How the ranks of a host share out what comes from other hosts, or goes there: each takes care of
/// the ranks that have its place on their own hosts, modulo the ranks of its host. So the network
/// carries everything once for each host, and every rank of a host has about as much to do. Ranks
/// are known by their index in the batch, and hosts and places by their number.
class Counterparts {
 public:
  /// `ranks` are the batch's.
  Counterparts(std::span<const int> ranks, const Placement& placement, int own_rank);

  [[nodiscard]] int hosts() const { return static_cast<int>(hosts_.size()); }
  [[nodiscard]] int own_host() const { return own_host_; }
  /// Of this rank's host.
  [[nodiscard]] std::span<const int> local_peers() const { return on(own_host_); }
  /// The rank on that host which takes care of this one.
  [[nodiscard]] int on_behalf_of_this(int host) const {
    return on(host)[static_cast<std::size_t>(own_place_) % on(host).size()];
  }
  /// The ranks of that host which the rank at `place` of this host takes care of.
  [[nodiscard]] std::vector<int> cared_for(int place, int host) const;
  /// The same on all other hosts, the next host first.
  [[nodiscard]] std::vector<int> cared_for(int place) const;

 private:
  [[nodiscard]] std::span<const int> on(int host) const {
    return hosts_[static_cast<std::size_t>(host)];
  }

  std::vector<std::vector<int>> hosts_{};
  int own_host_;
  int own_place_;
};

/// Placements of lists of ranks. Jobs reduce over few lists, batch after batch, and finding a
/// placement costs as much as a small allreduce once there are thousands of ranks. One thread at a
/// time.
class PlacementCache {
 public:
  static constexpr std::size_t max_kept = 16;

  /// `node_of` as for `Placement::of`.
  explicit PlacementCache(std::vector<int> node_of) : node_of_(std::move(node_of)) {}

  /// Valid until the next call.
  [[nodiscard]] const Placement& of(std::span<const int> ranks);
  [[nodiscard]] std::size_t size() const { return kept_.size(); }

 private:
  struct Kept {
    std::vector<int> ranks{};
    Placement placement{};
  };

  std::vector<int> node_of_;
  std::vector<Kept> kept_{};
  std::size_t oldest_ = 0;  // of a full cache
};

/// The owners of one slice: one rank of each host, in the order of the hosts. At least two.
struct Owners {
  std::vector<int> ranks{};
  int own = 0;  // this rank's place

  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
  /// The rank of an owner; places go round.
  [[nodiscard]] int rank(int owner) const {
    return ranks[static_cast<std::size_t>((owner + size()) % size())];
  }
};

/// The owners of this slice: the ranks of a host own slices in turns. `host`: this rank's.
[[nodiscard]] Owners owners_of(int slice, int host, const Placement& placement);

}  // namespace kolo::internal::backend::internode
