// SPDX-License-Identifier: Apache-2.0
// The processors of this host, with their caches and NUMA nodes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "node/caches.hpp"

struct hwloc_topology;

namespace kolo::internal::node {

/// The numbers of the processors that this thread may use.
[[nodiscard]] std::vector<int> own_processors();

/// hwloc's description of a host. If hwloc knows nothing, every processor counts as having its own
/// cache, and there are no NUMA nodes.
class Processors {
 public:
  /// Describes this host. Loading takes milliseconds.
  [[nodiscard]] static Processors of_this_host();
  /// Describes a host in the notation of hwloc_topology_set_synthetic, for tests.
  [[nodiscard]] static Processors synthetic(const std::string& description);

  /// The second-level caches of the given processors.
  [[nodiscard]] Caches caches_of(std::span<const int> processors) const;
  /// The number of the NUMA node that contains all of these processors; -1 if there is none or none
  /// is known. If several do, the one with the fewest processors: memory that has no processors of
  /// its own appears as a node of all processors near it.
  [[nodiscard]] int numa_node_of(std::span<const int> processors) const;

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
