// SPDX-License-Identifier: Apache-2.0
// The processors of this host, with their caches and NUMA nodes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

struct hwloc_topology;

namespace kolo::internal::node {

/// The numbers of the processors that this thread may use.
[[nodiscard]] std::vector<int> own_processors();

/// The second-level caches of the processors that a rank may use.
struct Caches {
  static constexpr int max_processors = 1024;  // higher numbers are left out

  std::int64_t bytes = 0;                                     // size per cache; 0 if not known
  std::array<std::uint64_t, max_processors / 64> known_by{};  // bits: each cache's first processor

  void add(int first_processor);
};

/// A rank's share, in bytes, of the second-level caches that the ranks of a host use together; at
/// most the size of one cache.
[[nodiscard]] std::int64_t cache_share(std::span<const Caches> of_ranks);

/// The processors of a host as hwloc describes them. Where hwloc knows nothing, every processor has
/// a cache of its own and no NUMA node has any processor.
class Processors {
 public:
  /// The processors of this host. Loading takes milliseconds.
  [[nodiscard]] static Processors of_this_host();
  /// A host that is described in the language of hwloc_topology_set_synthetic, for tests.
  [[nodiscard]] static Processors synthetic(const std::string& description);

  /// The caches of these processors.
  [[nodiscard]] Caches caches_of(std::span<const int> processors) const;
  /// The number of the NUMA node that has all of these processors; -1 if no such node exists or is
  /// known. If several nodes have them, the result is the node with the fewest processors, because
  /// hwloc shows memory without processors of its own as a node with all processors near it.
  [[nodiscard]] int numa_node_of(std::span<const int> processors) const;

  using Groups = std::vector<std::vector<int>>;
  /// These processors by core. Neighbors in the host are neighbors in the result, whatever their
  /// numbers are. A processor that is not known is a core.
  [[nodiscard]] Groups cores_of(std::span<const int> processors) const;
  /// These processors by NUMA node, in the same order. Those without a known node are one group.
  [[nodiscard]] Groups numa_nodes_of(std::span<const int> processors) const;

 private:
  struct Destroy {
    void operator()(hwloc_topology* topology) const;
  };
  using Topology = std::unique_ptr<hwloc_topology, Destroy>;

  explicit Processors(Topology topology) : topology_(std::move(topology)) {}
  /// Null if hwloc fails. A null `description` means this host.
  static Topology load(const char* description);

  Topology topology_;
};

}  // namespace kolo::internal::node
