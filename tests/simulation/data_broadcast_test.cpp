// SPDX-License-Identifier: Apache-2.0
// Broadcasts of the real backend between hosts, over a simulated network.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "data_cluster.hpp"
#include "data_scale.hpp"

namespace kolo::internal::simulation {
namespace {

using backend::Batch;
using backend::BatchTensor;

using Bytes = std::vector<std::uint8_t>;

Bytes bytes_of(int rank, std::size_t tensor, std::size_t length) {
  Bytes bytes(length);
  for (std::size_t i = 0; i < length; ++i)
    bytes[i] = static_cast<std::uint8_t>(i * 31 + i / 251 + tensor * 7 +
                                         static_cast<std::size_t>(rank) * 101);
  return bytes;
}

/// Broadcasts tensors of these lengths among some of the ranks, and checks all of them. Every
/// other rank has outputs of its own.
void expect_bytes_of_the_root(DataCluster& cluster, const std::vector<int>& ranks, int root,
                              const std::vector<std::size_t>& lengths) {
  const auto size = static_cast<std::size_t>(cluster.size());
  std::vector<std::vector<Bytes>> inputs(size);
  std::vector<std::vector<Bytes>> outputs(size);
  std::vector<std::vector<BatchTensor>> members(size);
  for (const int rank : ranks) {
    const auto place = static_cast<std::size_t>(rank);
    const bool in_place = rank % 2 == 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      Bytes& input = inputs[place].emplace_back(bytes_of(rank, i, lengths[i]));
      Bytes& output = outputs[place].emplace_back(in_place ? 0 : lengths[i]);
      members[place].push_back({.input = input.data(),
                                .output = in_place ? input.data() : output.data(),
                                .rows = static_cast<std::int64_t>(lengths[i])});
    }
  }
  Descriptor kind;
  kind.type = OperationType::broadcast;
  kind.root = root;
  Batch batch = cluster.batch_of(kind);
  batch.ranks = ranks;
  cluster.run([&](int rank) -> std::unique_ptr<backend::Execution> {
    const auto place = static_cast<std::size_t>(rank);
    if (members[place].empty()) return nullptr;
    Batch own = batch;
    for (const BatchTensor& member : members[place]) own.tensors.push_back(&member);
    return cluster.inter_node(rank).start(std::move(own));
  });
  for (const int rank : ranks)
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const auto place = static_cast<std::size_t>(rank);
      const Bytes& result = rank % 2 == 0 ? inputs[place][i] : outputs[place][i];
      ASSERT_EQ(result, bytes_of(root, i, lengths[i])) << "rank " << rank << ", tensor " << i;
      if (rank % 2 == 0) continue;
      ASSERT_EQ(inputs[place][i], bytes_of(rank, i, lengths[i])) << "the input was changed";
    }
}

/// Just above the size of a message, one long tensor, and many short and long ones.
const std::vector<std::vector<std::size_t>> all_lengths{
    {61'441}, {300'000}, {1, 0, 70'000, 3, 40'000, 17, 100'000, 5}};

class Broadcasts : public testing::TestWithParam<std::vector<int>> {};  // host sizes

TEST_P(Broadcasts, EveryRootsBytesReachAll) {
  for (const std::int64_t slot_bytes : {std::int64_t{4096}, std::int64_t{1} << 20}) {
    DataCluster cluster(GetParam(), NetworkModel(), slot_bytes);
    std::vector<int> all(static_cast<std::size_t>(cluster.size()));
    std::iota(all.begin(), all.end(), 0);
    for (const int root : all)
      for (const auto& lengths : all_lengths) {
        SCOPED_TRACE(testing::Message() << "root " << root << ", slots of " << slot_bytes);
        ASSERT_NO_FATAL_FAILURE(expect_bytes_of_the_root(cluster, all, root, lengths));
      }
  }
}

TEST_P(Broadcasts, AmongSomeOfTheRanks) {
  DataCluster cluster(GetParam(), NetworkModel());
  std::vector<int> some;
  for (int rank = 0; rank < cluster.size(); ++rank)
    if (rank % 3 != 1 || rank == cluster.size() - 1) some.push_back(rank);
  for (const int root : some)
    for (const auto& lengths : all_lengths)
      ASSERT_NO_FATAL_FAILURE(expect_bytes_of_the_root(cluster, some, root, lengths));
}

INSTANTIATE_TEST_SUITE_P(HostSizes, Broadcasts,
                         testing::Values(std::vector{2, 2}, std::vector{1, 3}, std::vector{3, 1, 2},
                                         std::vector{1, 1, 1, 1}, std::vector{2, 5, 1, 3, 2},
                                         std::vector{1, 2, 1, 2, 1, 2, 1, 2, 1},
                                         std::vector(11, 2)));

TEST(BroadcastScale, TakesLittleMoreThanTheTimeOfItsBytes) {
  const NetworkModel model;
  for (const int hosts : {3, 8, 64, 100, 256, 512}) {
    const DataCase one{.hosts = hosts, .bytes = 8 << 20};
    const DataCost cost = cost_of_broadcast(one, model);
    EXPECT_LE(cost.time, 1.5 * time_of(static_cast<double>(one.bytes), model)) << hosts;
    EXPECT_LE(static_cast<double>(cost.most.bytes_sent), 1.02 * static_cast<double>(one.bytes));
    EXPECT_EQ(cost.most.bytes_received, one.bytes) << hosts;
  }
}

TEST(BroadcastScale, HostsOfOneRankSendHardlyAnythingTwice) {
  const NetworkModel model;
  for (const int hosts : {3, 5, 8}) {
    const DataCase one{
        .hosts = hosts, .ranks_per_host = 1, .bytes = 8 << 20, .leaders_only = false, .flat = true};
    const DataCost cost = cost_of_broadcast(one, model);
    EXPECT_LE(cost.time, 1.3 * time_of(static_cast<double>(one.bytes), model)) << hosts;
    // One of the trees may carry a piece more, and a rank sends it to two others.
    EXPECT_LE(cost.most.bytes_sent, one.bytes + (60 << 10)) << hosts;
  }
}

TEST(BroadcastScale, LeadersCostWhatAllRanksCost) {
  for (const int hosts : {4, 6}) {
    DataCase one{.hosts = hosts, .ranks_per_host = 4, .bytes = 8 << 20};
    const DataCost leaders = cost_of_broadcast(one, NetworkModel());
    one.leaders_only = false;
    const DataCost all = cost_of_broadcast(one, NetworkModel());
    EXPECT_EQ(leaders.most.bytes_sent, all.most.bytes_sent);
    EXPECT_NEAR(static_cast<double>(leaders.time.count()), static_cast<double>(all.time.count()),
                0.1 * static_cast<double>(all.time.count()));
  }
}

}  // namespace
}  // namespace kolo::internal::simulation
