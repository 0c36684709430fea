// SPDX-License-Identifier: Apache-2.0
// Allgathers of the real backend between many hosts, over a simulated network.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data_cluster.hpp"
#include "data_scale.hpp"

namespace kolo::internal::simulation {
namespace {

using backend::Batch;
using backend::BatchTensor;

using Bytes = std::vector<std::uint8_t>;

/// The rows of a rank for a tensor. Some ranks have none.
Bytes rows_of(int rank, std::size_t tensor, std::int64_t longest) {
  Bytes rows(static_cast<std::size_t>(longest * (rank * 7 % 5) / 4));
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] = static_cast<std::uint8_t>(i * 13 + i / 251 + tensor * 5 +
                                        static_cast<std::size_t>(rank) * 31);
  return rows;
}

/// Gathers a tensor for each of `longest`, and checks the results of all ranks.
void expect_rows_of_all(DataCluster& cluster, const std::vector<std::int64_t>& longest) {
  const auto size = static_cast<std::size_t>(cluster.size());
  std::vector<std::vector<Bytes>> inputs(size);
  std::vector<std::vector<Bytes>> outputs(size, std::vector<Bytes>(longest.size()));
  std::vector<std::vector<BatchTensor>> members(size);
  for (std::size_t rank = 0; rank < size; ++rank)
    for (std::size_t i = 0; i < longest.size(); ++i) {
      Bytes& input = inputs[rank].emplace_back(rows_of(static_cast<int>(rank), i, longest[i]));
      Bytes& output = outputs[rank][i];
      members[rank].push_back({.input = input.data(),
                               .rows = std::ssize(input),
                               .allocate = [&output](std::span<const std::int64_t> rows) -> void* {
                                 std::int64_t total = 0;
                                 for (const std::int64_t one : rows) total += one;
                                 output.resize(static_cast<std::size_t>(total));
                                 return output.data();
                               }});
    }
  Descriptor kind;
  kind.type = OperationType::allgather;
  const Batch batch = cluster.batch_of(kind);
  cluster.run([&](int rank) {
    Batch own = batch;
    for (const BatchTensor& member : members[static_cast<std::size_t>(rank)])
      own.tensors.push_back(&member);
    return cluster.inter_node(rank).start(std::move(own));
  });
  for (std::size_t i = 0; i < longest.size(); ++i) {
    Bytes expected;
    for (const std::vector<Bytes>& input : inputs)
      expected.insert(expected.end(), input[i].begin(), input[i].end());
    for (std::size_t rank = 0; rank < size; ++rank)
      ASSERT_EQ(outputs[rank][i], expected) << "rank " << rank << ", tensor " << i;
  }
}

class Allgathers : public testing::TestWithParam<std::vector<int>> {};  // host sizes

TEST_P(Allgathers, RowsOfAllReachAll) {
  for (const std::int64_t slot_bytes : {std::int64_t{4096}, std::int64_t{1} << 20}) {
    DataCluster cluster(GetParam(), NetworkModel(), slot_bytes);
    // No rows at all, short blocks, which travel together, and long ones.
    for (const std::vector<std::int64_t>& longest :
         std::vector<std::vector<std::int64_t>>{{0}, {4}, {300, 0, 5'000}, {70'000, 1}})
      ASSERT_NO_FATAL_FAILURE(expect_rows_of_all(cluster, longest)) << slot_bytes;
  }
}

INSTANTIATE_TEST_SUITE_P(HostSizes, Allgathers,
                         testing::Values(std::vector(9, 1), std::vector(9, 2), std::vector(11, 3),
                                         std::vector(16, 2), std::vector(3, 4),
                                         std::vector{1, 2, 3, 1, 2, 3, 1, 2, 3, 1}));

TEST(AllgatherScale, TakesTheTimeOfItsBytesAndFewMessages) {
  const NetworkModel model;
  for (const int hosts : {64, 256, 512}) {
    const DataCase one{.hosts = hosts, .bytes = 8 << 20};
    const DataCost cost = cost_of_allgather(one, model);
    EXPECT_LE(cost.time, 1.3 * least_time(one, model) / 2) << hosts;
    EXPECT_LE(static_cast<double>(cost.most.bytes_sent), 1.01 * least_bytes(one) / 2) << hosts;
    // If each rank sent to all hosts, they would be 16 (hosts - 1).
    EXPECT_LE(cost.most.messages_sent, hosts == 64 ? 600 : 300) << hosts;
  }
}

}  // namespace
}  // namespace kolo::internal::simulation
