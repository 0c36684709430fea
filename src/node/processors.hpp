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

/// What hwloc knows of a host. Where it knows nothing, every processor has a cache of its own and
/// no node has any.
class Processors {
 public:
  /// Of this host. Loading takes milliseconds.
  [[nodiscard]] static Processors of_this_host();
  /// As hwloc_topology_set_synthetic describes a host, for tests.
  [[nodiscard]] static Processors synthetic(const std::string& description);

  /// Of these processors.
  [[nodiscard]] Caches caches_of(std::span<const int> processors) const;
  /// The number of the one node that has all of these processors; -1 if there is none, or none is
  /// known. Of several, the one with the fewest processors: memory without processors of its own is
  /// a node of all that are near it.
  [[nodiscard]] int numa_node_of(std::span<const int> processors) const;

 private:
  struct Destroy {
    void operator()(hwloc_topology* topology) const;
  };
  using Topology = std::unique_ptr<hwloc_topology, Destroy>;

  explicit Processors(Topology topology) : topology_(std::move(topology)) {}
  /// Null if hwloc fails. `description` is null for this host.
  static Topology load(const char* description);

  Topology topology_;
};

}  // namespace kolo::internal::node
