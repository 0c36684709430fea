// SPDX-License-Identifier: Apache-2.0
#include "node/processors.hpp"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <type_traits>
#include <utility>

namespace kolo::internal::node {
namespace {

constexpr std::int64_t default_cache_bytes = std::int64_t{1} << 20;

// hwloc must not bind this thread to each processor in turn. The other flags save time.
constexpr unsigned long quickly = HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING |
                                  HWLOC_TOPOLOGY_FLAG_NO_DISTANCES |
                                  HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS | HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS;

struct Free {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, Free>;

/// The second-level cache of the processor; null if hwloc does not know it.
hwloc_obj_t cache_of(hwloc_topology_t topology, int processor) {
  if (topology == nullptr) return nullptr;
  hwloc_obj* const found = hwloc_get_pu_obj_by_os_index(topology, static_cast<unsigned>(processor));
  return found == nullptr ? nullptr
                          : hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_L2CACHE, found);
}

/// The core of the processor; null if hwloc does not know it.
hwloc_obj_t core_with(hwloc_topology_t topology, int processor) {
  if (topology == nullptr) return nullptr;
  hwloc_obj* const found = hwloc_get_pu_obj_by_os_index(topology, static_cast<unsigned>(processor));
  return found == nullptr ? nullptr
                          : hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, found);
}

/// The processors with their positions in the host, in this order. The kernel may number the
/// sockets, or the threads of cores, in turn.
std::set<std::pair<unsigned, int>> by_position(hwloc_topology_t topology,
                                               std::span<const int> processors) {
  std::set<std::pair<unsigned, int>> positions;
  for (const int processor : processors) {
    const auto number = static_cast<unsigned>(processor);
    hwloc_obj* const found =
        topology == nullptr ? nullptr : hwloc_get_pu_obj_by_os_index(topology, number);
    positions.emplace(found == nullptr ? number : found->logical_index, processor);
  }
  return positions;
}

}  // namespace

void Caches::add(int first_processor) {
  const auto number = static_cast<std::size_t>(first_processor);
  if (number < max_processors) known_by[number / 64] |= std::uint64_t{1} << (number % 64);
}

std::int64_t cache_share(std::span<const Caches> of_ranks) {
  std::int64_t bytes = 0;
  Caches all;
  for (const Caches& caches : of_ranks) {
    if (caches.bytes > 0) bytes = bytes == 0 ? caches.bytes : std::min(bytes, caches.bytes);
    for (std::size_t i = 0; i < all.known_by.size(); ++i) all.known_by[i] |= caches.known_by[i];
  }
  if (bytes == 0) bytes = default_cache_bytes;
  std::int64_t count = 0;
  for (const std::uint64_t bits : all.known_by) count += std::popcount(bits);
  return std::min(bytes, bytes * std::max<std::int64_t>(count, 1) / std::ssize(of_ranks));
}

std::vector<int> own_processors() {
  cpu_set_t set;
  std::vector<int> processors;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return processors;
  for (std::size_t processor = 0; processor < CPU_SETSIZE; ++processor)
    if (CPU_ISSET(processor, &set)) processors.push_back(static_cast<int>(processor));
  return processors;
}

void Processors::Destroy::operator()(hwloc_topology* topology) const {
  hwloc_topology_destroy(topology);
}

Processors::Topology Processors::load(const char* description) {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) return nullptr;
  Topology topology(made);
  if (description != nullptr && hwloc_topology_set_synthetic(made, description) != 0)
    return nullptr;
  hwloc_topology_set_all_types_filter(made, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(made, HWLOC_OBJ_L2CACHE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(made, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
  // Without groups, hwloc attaches every NUMA node to the whole host.
  hwloc_topology_set_type_filter(made, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  hwloc_topology_set_flags(made, quickly);
  return hwloc_topology_load(made) == 0 ? std::move(topology) : nullptr;
}

Processors Processors::of_this_host() {
  Topology topology = load(nullptr);
  // Environment variables may make hwloc describe another host; then it is not used.
  if (topology != nullptr && hwloc_topology_is_thissystem(topology.get()) == 0) topology.reset();
  return Processors(std::move(topology));
}

Processors Processors::synthetic(const std::string& description) {
  return Processors(load(description.c_str()));
}

Caches Processors::caches_of(std::span<const int> processors) const {
  Caches caches;
  for (const int processor : processors) {
    const hwloc_obj* const cache = cache_of(topology_.get(), processor);
    if (caches.bytes == 0 && cache != nullptr)
      caches.bytes = static_cast<std::int64_t>(cache->attr->cache.size);
    // The complete set gives ranks in different cgroups the same number for a common cache.
    caches.add(cache == nullptr ? processor : hwloc_bitmap_first(cache->complete_cpuset));
  }
  return caches;
}

int Processors::numa_node_of(std::span<const int> processors) const {
  const Bitmap mask(hwloc_bitmap_alloc());
  if (topology_ == nullptr || mask == nullptr || processors.empty()) return -1;
  for (const int processor : processors)
    hwloc_bitmap_set(mask.get(), static_cast<unsigned>(processor));
  hwloc_obj_t found = nullptr;
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology_.get(), HWLOC_OBJ_NUMANODE, node)) != nullptr;)
    if (hwloc_bitmap_isincluded(mask.get(), node->cpuset) != 0 &&
        (found == nullptr ||
         hwloc_bitmap_weight(node->cpuset) < hwloc_bitmap_weight(found->cpuset)))
      found = node;
  // The kernel's number is the same for ranks in different cgroups.
  return found == nullptr ? -1 : static_cast<int>(found->os_index);
}

Processors::Groups Processors::cores_of(std::span<const int> processors) const {
  Groups cores;
  hwloc_obj* last = nullptr;
  for (const auto& [position, processor] : by_position(topology_.get(), processors)) {
    hwloc_obj* const core = core_with(topology_.get(), processor);
    if (core == nullptr || core != last) cores.emplace_back();
    cores.back().push_back(processor);
    last = core;
  }
  return cores;
}

Processors::Groups Processors::numa_nodes_of(std::span<const int> processors) const {
  Groups nodes;
  std::map<int, std::size_t> groups;  // by the number of the node
  for (const auto& [position, processor] : by_position(topology_.get(), processors)) {
    const int node = numa_node_of(std::span(&processor, 1));
    const auto [group, is_new] = groups.try_emplace(node, nodes.size());
    if (is_new) nodes.emplace_back();
    nodes[group->second].push_back(processor);
  }
  return nodes;
}

}  // namespace kolo::internal::node
