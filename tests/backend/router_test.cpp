// SPDX-License-Identifier: Apache-2.0
// The routes of batches of CPU tensors, among made-up hosts that consist of the ranks of one host.
#include "backend/router/router.hpp"

#include <cstdint>
#include <set>
#include <vector>

#include "internode/internode_fixture.hpp"

namespace kolo::internal::backend {
namespace {

class CpuRouting : public InterNodeTest {
 protected:
  [[nodiscard]] Batch among(Descriptor kind, std::vector<int> ranks) {
    Batch batch = batch_of(std::move(kind));
    batch.ranks = std::move(ranks);
    return batch;
  }

  [[nodiscard]] std::vector<int> ranks_of_own_host(const NodeOf& node_of) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size_; ++rank)
      if (node_of[static_cast<std::size_t>(rank)] == node_of[static_cast<std::size_t>(rank_)])
        ranks.push_back(rank);
    return ranks;
  }

  messenger::MpiMessenger messenger_{comm_};
};

TEST_F(CpuRouting, EverythingGoesOverMpiWithoutSharedMemory) {
  const CpuRouter router(&messenger_);
  EXPECT_EQ(router.route_of(batch_of(allreduce_of(ReduceOp::sum))), Route::mpi);
  EXPECT_EQ(router.route_of(among(operation_of(OperationType::broadcast, rank_), {rank_})),
            Route::mpi);
}

TEST_F(CpuRouting, SharedMemoryInsideAHostAndMpiBetweenHosts) {
  on_every_layout([&](const NodeOf& node_of) {
    CpuRouter router(&messenger_);
    router.use_memory(hosts_->inside());
    const std::vector<int> own_host = ranks_of_own_host(node_of);
    for (const Descriptor& kind :
         {allreduce_of(ReduceOp::sum), operation_of(OperationType::allgather),
          operation_of(OperationType::broadcast_string, rank_),
          operation_of(OperationType::barrier)})
      EXPECT_EQ(router.route_of(among(kind, own_host)), Route::shared_memory);
    EXPECT_EQ(router.route_of(among(allreduce_of(ReduceOp::adasum), own_host)), Route::mpi);
    EXPECT_EQ(router.route_of(batch_of(allreduce_of(ReduceOp::sum))), Route::mpi);
  });
}

TEST_F(CpuRouting, WhatHostsCanShareIsInterNode) {
  on_every_layout([&](const NodeOf& node_of) {
    CpuRouter router(&messenger_);
    router.use_memory(hosts_->inside());
    router.use_hosts(node_of);
    EXPECT_EQ(router.route_of(batch_of(allreduce_of(ReduceOp::sum))), Route::inter_node);
    EXPECT_EQ(router.route_of(batch_of(allreduce_of(ReduceOp::adasum))), Route::mpi);
    EXPECT_EQ(router.route_of(batch_of(operation_of(OperationType::alltoall))), Route::mpi);
    EXPECT_EQ(router.route_of(batch_of(operation_of(OperationType::broadcast, 0))), Route::mpi);
    const BatchTensor large{.rows = InterNodeBackend::default_message_bytes + 1};
    Batch broadcast = batch_of(operation_of(OperationType::broadcast, 0));
    broadcast.tensors.push_back(&large);
    EXPECT_EQ(router.route_of(broadcast), Route::inter_node);
    EXPECT_EQ(router.route_of(among(allreduce_of(ReduceOp::sum), ranks_of_own_host(node_of))),
              Route::shared_memory);
    // The lowest rank of each host: no host has a second one.
    const std::set<int> lowest(node_of.begin(), node_of.end());
    EXPECT_EQ(router.route_of(among(allreduce_of(ReduceOp::sum), {lowest.begin(), lowest.end()})),
              Route::inter_node);
    for (const OperationType type : {OperationType::allgather, OperationType::reducescatter}) {
      EXPECT_EQ(router.route_of(batch_of(operation_of(type))), Route::inter_node);
      EXPECT_EQ(router.route_of(among(operation_of(type), {lowest.begin(), lowest.end()})),
                type == OperationType::allgather ? Route::mpi : Route::inter_node);
    }
  });
}

TEST_F(CpuRouting, MpiIsActiveWhileBatchesGoBetweenHosts) {
  on_every_layout([&](const NodeOf& node_of) {
    messenger::MpiMessenger messenger(comm_);
    CpuRouter router(&messenger);
    router.use_memory(hosts_->inside());
    router.use_hosts(node_of);
    finish(*router.start(among(operation_of(OperationType::barrier), ranks_of_own_host(node_of))));
    EXPECT_FALSE(messenger.uses_memory());
    const auto value = [&](std::size_t, std::int64_t k) { return static_cast<double>(rank_ + k); };
    Tensors<double> tensors({300}, true, value);
    const auto execution = router.start(batch_of(allreduce_of(ReduceOp::sum), tensors));
    EXPECT_TRUE(messenger.uses_memory());
    EXPECT_FALSE(messenger.may_sleep());
    finish(*execution);
    EXPECT_TRUE(tensors.hold(
        [&](std::size_t, std::int64_t k) {
          return static_cast<double>(size_ * (size_ - 1) / 2 + size_ * k);
        },
        value));
  });
}

}  // namespace
}  // namespace kolo::internal::backend
