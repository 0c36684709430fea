// SPDX-License-Identifier: Apache-2.0
#include "data_cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace kolo::internal::simulation {
namespace {

using backend::Batch;
using backend::Execution;
using backend::Progress;

constexpr std::size_t line_bytes = 64;

std::vector<int> hosts_of(const std::vector<int>& host_sizes) {
  std::vector<int> host_of;
  for (std::size_t host = 0; host < host_sizes.size(); ++host)
    host_of.insert(host_of.end(), static_cast<std::size_t>(host_sizes[host]),
                   static_cast<int>(host));
  return host_of;
}

}  // namespace

DataCluster::DataCluster(const std::vector<int>& host_sizes, const NetworkModel& model,
                         std::int64_t slot_bytes)
    : network_(model, hosts_of(host_sizes)), bell_(word_, node::Doorbell::open()) {
  for (const int host_size : host_sizes)
    node_of_.insert(node_of_.end(), static_cast<std::size_t>(host_size),
                    static_cast<int>(node_of_.size()));
  int first = 0;
  for (const int host_size : host_sizes) {
    make_host(first, host_size, slot_bytes);
    first += host_size;
  }
}

void DataCluster::make_host(int first, int size, std::int64_t slot_bytes) {
  const std::size_t bytes = backend::shm::Arena::bytes_needed(slot_bytes);
  std::vector<backend::shm::LocalPeer> peers;
  for (int index = 0; index < size; ++index) {
    Rank& rank = ranks_.emplace_back();
    std::size_t room = bytes + line_bytes;
    rank.memory.reset(std::calloc(room, 1));
    void* begin = rank.memory.get();
    if (begin == nullptr || std::align(line_bytes, bytes, begin, room) == nullptr)
      throw std::runtime_error("there is no memory for the simulated hosts");
    peers.push_back({static_cast<std::byte*>(begin), &bell_, {}});
  }
  for (int index = 0; index < size; ++index) {
    Rank& rank = ranks_[static_cast<std::size_t>(first + index)];
    messenger::Messenger& messenger = network_.messenger(first + index);
    rank.arena = std::make_unique<backend::shm::Arena>(peers, index, slot_bytes, slot_bytes, 0);
    rank.inter_node = std::make_unique<backend::InterNodeBackend>(messenger, node_of_, *rank.arena);
    rank.flat = std::make_unique<backend::MpiBackend>(messenger);
  }
}

void DataCluster::use(backend::internode::InterNodeAlgorithm algorithm) {
  for (const Rank& rank : ranks_) rank.inter_node->use(algorithm);
}

Batch DataCluster::batch_of(const Descriptor& kind) {
  Batch batch;
  batch.kind = kind;
  batch.set.resize(static_cast<std::size_t>(size()));
  std::iota(batch.set.begin(), batch.set.end(), 0);
  batch.ranks = batch.set;
  batch.divisor = size();
  batch.sequence = sequence_++;
  return batch;
}

DataCost DataCluster::run(const std::function<std::unique_ptr<Execution>(int)>& start) {
  struct Running {
    bool begun = false;
    std::unique_ptr<Execution> execution{};
  };
  std::vector<Running> all(static_cast<std::size_t>(size()));
  const std::vector<NicTraffic> before = network_.traffic();
  DataCost cost;
  cost.time = network_.run([&](int rank) {
    Running& own = all[static_cast<std::size_t>(rank)];
    if (!std::exchange(own.begun, true)) own.execution = start(rank);
    if (own.execution == nullptr) return false;
    const Progress progress = own.execution->step();
    if (progress == Progress::done) own.execution.reset();
    return progress != Progress::waiting;
  });
  for (int rank = 0; rank < size(); ++rank)
    if (all[static_cast<std::size_t>(rank)].execution != nullptr)
      throw std::logic_error(fmt::format("rank {} waits forever", rank));
  for (std::size_t nic = 0; nic < before.size(); ++nic) {
    const NicTraffic& now = network_.traffic()[nic];
    const auto raise = [&](std::int64_t NicTraffic::*count) {
      cost.most.*count = std::max(cost.most.*count, now.*count - before[nic].*count);
    };
    raise(&NicTraffic::messages_sent);
    raise(&NicTraffic::bytes_sent);
    raise(&NicTraffic::messages_received);
    raise(&NicTraffic::bytes_received);
  }
  return cost;
}

}  // namespace kolo::internal::simulation
