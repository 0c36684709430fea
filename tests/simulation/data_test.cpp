// SPDX-License-Identifier: Apache-2.0
// Allreduces of the real backend between hosts, over a simulated network: checks every element, and
// the traffic of each NIC. Results do not depend on the machine's speed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "data_cluster.hpp"
#include "data_scale.hpp"

namespace kolo::internal::simulation {
namespace {

using backend::Batch;
using backend::BatchTensor;
using backend::internode::InterNodeAlgorithm;

constexpr InterNodeAlgorithm all_algorithms[]{InterNodeAlgorithm::whole, InterNodeAlgorithm::direct,
                                              InterNodeAlgorithm::doubling,
                                              InterNodeAlgorithm::halving};

Descriptor sum() {
  Descriptor kind;
  kind.type = OperationType::allreduce;
  kind.op = ReduceOp::sum;
  return kind;
}

/// The tensors of all ranks after an allreduce in place; random at first, by the rank.
std::vector<std::vector<float>> allreduce(DataCluster& cluster, std::int64_t elements,
                                          Time* time = nullptr) {
  std::vector<std::vector<float>> tensors;
  std::vector<BatchTensor> members;
  for (int rank = 0; rank < cluster.size(); ++rank) {
    std::mt19937 random(static_cast<unsigned>(rank));
    std::vector<float>& tensor = tensors.emplace_back(elements);
    for (float& value : tensor) value = static_cast<float>(random()) / 3e9F - 0.7F;
    members.push_back(
        {.input = tensor.data(), .output = tensor.data(), .dtype = DType::f32, .rows = elements});
  }
  const Batch batch = cluster.batch_of(sum());
  const DataCost cost = cluster.run([&](int rank) {
    Batch own = batch;
    own.tensors.push_back(&members[static_cast<std::size_t>(rank)]);
    return cluster.inter_node(rank).start(std::move(own));
  });
  if (time != nullptr) *time = cost.time;
  return tensors;
}

class Data : public testing::TestWithParam<int> {};  // hosts

TEST_P(Data, EveryElementIsRightWithEachAlgorithm) {
  for (const InterNodeAlgorithm algorithm : all_algorithms)
    for (const std::int64_t bytes : {4, 400, 40'000, 2'000'000})
      for (const bool leaders_only : {true, false}) {
        if (!leaders_only && bytes > 40'000) continue;
        SCOPED_TRACE(testing::Message()
                     << "algorithm " << static_cast<int>(algorithm) << ", " << bytes << " bytes");
        EXPECT_NO_THROW(static_cast<void>(cost_of_allreduce({.hosts = GetParam(),
                                                             .ranks_per_host = 3,
                                                             .bytes = bytes,
                                                             .algorithm = algorithm,
                                                             .leaders_only = leaders_only},
                                                            NetworkModel())));
      }
}

/// The elements do not depend on the length of the tensor, so neither do the results.
TEST_P(Data, AllRanksOfUnevenHostsGetTheSameBitsWithEachAlgorithmAndLength) {
  std::vector<int> host_sizes;
  for (int host = 0; host < GetParam(); ++host) host_sizes.push_back(1 + host % 3);
  DataCluster cluster(host_sizes, NetworkModel());
  std::vector<float> longest;
  for (const std::int64_t elements : {300'000, 1000, 1}) {
    for (const InterNodeAlgorithm algorithm : all_algorithms) {
      cluster.use(algorithm);
      const std::vector<std::vector<float>> tensors = allreduce(cluster, elements);
      if (longest.empty()) longest = tensors.front();
      for (const std::vector<float>& tensor : tensors)
        EXPECT_EQ(std::memcmp(tensor.data(), longest.data(), tensor.size() * sizeof(float)), 0);
    }
  }
}

/// Ranks of a tensor for a reducescatter and an allreduce; random, by the rank.
struct Scattered {
  std::vector<std::byte> input{};
  std::vector<std::byte> whole{};
  std::vector<std::byte> output{};
};

/// Elements between 1/4 and 2, of both signs.
std::vector<std::byte> random_elements(DType dtype, std::int64_t count, int rank) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * signed_size_of(dtype)));
  for (std::int64_t index = 0; index < count; ++index) {
    const auto drawn = static_cast<std::uint32_t>(random());
    const auto half = static_cast<std::uint16_t>(0x3400U | (drawn & 0x8bffU));
    const float single = static_cast<float>(drawn) / 3e9F - 0.7F;
    if (dtype == DType::f16)
      std::memcpy(bytes.data() + index * 2, &half, 2);
    else
      std::memcpy(bytes.data() + index * 4, &single, 4);
  }
  return bytes;
}

void expect_bits_of_an_allreduce(DataCluster& cluster, DType dtype, std::int64_t rows,
                                 std::int64_t row_elements) {
  const int size = cluster.size();
  std::vector<Scattered> all(static_cast<std::size_t>(size));
  std::vector<BatchTensor> members;
  for (int rank = 0; rank < size; ++rank) {
    Scattered& own = all[static_cast<std::size_t>(rank)];
    own.input = own.whole = random_elements(dtype, rows * row_elements, rank);
    own.output.resize(static_cast<std::size_t>(reducescatter_rows(rows, rank, size) * row_elements *
                                               signed_size_of(dtype)));
    members.push_back({.input = own.input.data(),
                       .output = own.output.data(),
                       .dtype = dtype,
                       .rows = rows,
                       .row_elements = row_elements});
  }
  Descriptor kind = sum();
  kind.op = ReduceOp::average;
  for (const OperationType type : {OperationType::reducescatter, OperationType::allreduce}) {
    kind.type = type;
    const Batch batch = cluster.batch_of(kind);
    cluster.run([&](int rank) {
      BatchTensor& member = members[static_cast<std::size_t>(rank)];
      if (type == OperationType::allreduce)
        member.input = member.output = all[static_cast<std::size_t>(rank)].whole.data();
      Batch own = batch;
      own.tensors.push_back(&member);
      return cluster.inter_node(rank).start(std::move(own));
    });
  }
  std::size_t before = 0;
  for (const Scattered& own : all) {
    ASSERT_EQ(std::memcmp(own.output.data(), all.front().whole.data() + before, own.output.size()),
              0);
    before += own.output.size();
  }
}

TEST_P(Data, AReducescatterHasTheBitsOfAnAllreduce) {
  for (const int ranks_per_host : {1, 2}) {
    const int size = ranks_per_host * GetParam();
    DataCluster cluster(std::vector<int>(static_cast<std::size_t>(GetParam()), ranks_per_host),
                        NetworkModel(), /*slot_bytes=*/8192);
    for (const DType dtype : {DType::f32, DType::f16}) {
      expect_bits_of_an_allreduce(cluster, dtype, 3 * size + 1, 5);
      expect_bits_of_an_allreduce(cluster, dtype, 5000, 1);
      expect_bits_of_an_allreduce(cluster, dtype, size / 2 + 1, 40);  // some ranks get nothing
    }
  }
}

TEST_P(Data, ARunIsTheSameAgain) {
  const DataCase one{.hosts = GetParam(), .ranks_per_host = 2, .bytes = 100'000};
  EXPECT_EQ(cost_of_allreduce(one, NetworkModel()).time,
            cost_of_allreduce(one, NetworkModel()).time);
}

TEST_P(Data, NoNicCarriesMoreThanItMust) {
  for (const InterNodeAlgorithm algorithm :
       {InterNodeAlgorithm::direct, InterNodeAlgorithm::halving}) {
    const DataCase one{.hosts = GetParam(), .bytes = 1 << 20, .algorithm = algorithm};
    const DataCost cost = cost_of_allreduce(one, NetworkModel());
    // Sections are whole multiples of 16 elements.
    const double slack = 1.0 + 0.02 * GetParam();
    EXPECT_LE(static_cast<double>(cost.most.bytes_sent), slack * least_bytes(one));
    EXPECT_LE(static_cast<double>(cost.most.bytes_received), slack * least_bytes(one));
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, Data, testing::Values(2, 3, 4, 6, 7, 11, 12, 13, 16, 22));

TEST(DataScale, LeadersCostWhatAllRanksCost) {
  for (const int hosts : {4, 6}) {
    DataCase one{.hosts = hosts,
                 .ranks_per_host = 4,
                 .bytes = 8 << 20,
                 .algorithm = InterNodeAlgorithm::halving};
    const DataCost leaders = cost_of_allreduce(one, NetworkModel());
    one.leaders_only = false;
    const DataCost all = cost_of_allreduce(one, NetworkModel());
    EXPECT_EQ(leaders.most.bytes_sent, all.most.bytes_sent);
    EXPECT_NEAR(static_cast<double>(leaders.time.count()), static_cast<double>(all.time.count()),
                0.1 * static_cast<double>(all.time.count()));
  }
}

TEST(DataScale, LongTensorsTakeTheTimeOfTheirBytesAndShortOnesThatOfFewMessages) {
  const NetworkModel model;
  const DataCase large{.hosts = 16, .bytes = 32 << 20};
  EXPECT_LE(cost_of_allreduce(large, model).time, 1.35 * least_time(large, model));
  const Time one_message = model.latency;
  for (const int hosts : {16, 64}) {
    const int steps = hosts == 16 ? 4 : 6;
    const DataCost cost = cost_of_allreduce({.hosts = hosts, .bytes = 4}, model);
    EXPECT_LE(cost.time, 1.5 * 2 * steps * one_message);
    EXPECT_GE(cost.time, steps * one_message);
  }
}

/// Jobs lose hosts at random, so no number of hosts may be much slower than its neighbors.
TEST(DataScale, NoNumberOfHostsIsMuchSlowerThanTheNextPowerOfTwo) {
  const NetworkModel model;
  for (const std::int64_t bytes : {std::int64_t{4}, std::int64_t{128} << 10})
    for (const int next : {16, 32, 64, 128}) {
      const Time limit = cost_of_allreduce({.hosts = next, .bytes = bytes}, model).time * 3 / 2;
      for (int hosts = next / 2 + 1; hosts < next; ++hosts)
        EXPECT_LE(cost_of_allreduce({.hosts = hosts, .bytes = bytes}, model).time, limit)
            << hosts << " hosts, " << bytes << " bytes";
    }
}

/// The second host of a pair in a group of 11 goes on to a group of 13.
TEST(DataScale, GroupsOfGroupsThatAreCombinedInPairsGiveTheSameBits) {
  DataCluster cluster(std::vector<int>(11 * 13, 1), NetworkModel());
  std::vector<float> longest;
  for (const std::int64_t elements : {5000, 1}) {
    for (const InterNodeAlgorithm algorithm : all_algorithms) {
      cluster.use(algorithm);
      const std::vector<std::vector<float>> tensors = allreduce(cluster, elements);
      if (longest.empty()) longest = tensors.front();
      for (const std::vector<float>& tensor : tensors)
        ASSERT_EQ(std::memcmp(tensor.data(), longest.data(), tensor.size() * sizeof(float)), 0)
            << static_cast<int>(algorithm) << ", " << elements << " elements";
    }
  }
}

TEST(DataScale, AReducescatterTakesTheTimeOfItsBytesAndFewMessages) {
  const NetworkModel model;
  for (const auto& [hosts, steps] : {std::pair(64, 6), {256, 8}, {512, 9}}) {
    const DataCase one{.hosts = hosts, .bytes = 8 << 20};
    const DataCost cost = cost_of_reducescatter(one, model);
    EXPECT_LE(cost.time, 1.5 * least_time(one, model) / 2) << hosts;
    // Eight pieces on eight ranks. The first step of each takes two messages, since they are long.
    EXPECT_LE(cost.most.messages_sent, 8 * 8 * (steps + 1)) << hosts;
  }
}

TEST(DataScale, ARankThatIsAloneOnItsHostCopiesNothingThroughItsSlots) {
  DataCluster cluster(std::vector<int>(9, 1), NetworkModel());
  static_cast<void>(allreduce(cluster, 1'000'000));
  const backend::shm::Arena& arena = cluster.arena(0);
  for (std::size_t lane = 0; lane < backend::shm::lane_count; ++lane)
    for (std::size_t slot = 0; slot < backend::shm::slot_count; ++slot) {
      const std::byte* const bytes = arena.slot(0, lane, slot);
      EXPECT_TRUE(std::all_of(bytes, bytes + arena.slot_bytes(),
                              [](std::byte one) { return one == std::byte{}; }));
    }
}

/// A round trip takes as long as a rank needs to send its parts of 20 pieces to another.
TEST(DataScale, ALongLinkIsKeptFull) {
  NetworkModel model;
  model.latency = std::chrono::milliseconds(10);
  model.bytes_per_ns = 0.25;
  for (const int hosts : {2, 3, 4, 8})
    for (const int ranks_per_host : {1, 2}) {
      const DataCase one{.hosts = hosts,
                         .ranks_per_host = ranks_per_host,
                         .bytes = 64 << 20,
                         .leaders_only = false,
                         .flat = ranks_per_host == 1};
      EXPECT_LE(cost_of_allreduce(one, model).time, 1.35 * least_time(one, model))
          << hosts << " hosts of " << ranks_per_host;
    }
}

/// The network is busy for as long with any division of the work. So the time tells whether
/// messages wait for each other.
TEST(DataScale, UnevenHostsTakeLittleMoreTimeThanHostsOfOneRank) {
  for (const std::vector<int>& host_sizes :
       {std::vector{64, 1}, {8, 1}, {8, 8, 8, 1}, {1, 1, 1, 8}})
    for (const std::int64_t elements : {1, 256, 65'536, 1'000'000}) {
      Time time{};
      Time of_one_rank_each{};
      DataCluster uneven(host_sizes, NetworkModel());
      DataCluster even(std::vector<int>(host_sizes.size(), 1), NetworkModel());
      static_cast<void>(allreduce(uneven, elements, &time));
      static_cast<void>(allreduce(even, elements, &of_one_rank_each));
      EXPECT_LE(time, 1.5 * of_one_rank_each)
          << testing::PrintToString(host_sizes) << ", " << elements << " elements";
    }
}

TEST(DataNetwork, AMessageTakesItsOverheadsItsLatencyAndTheTimeOfItsBytes) {
  NetworkModel model;
  model.bytes_per_ns = 1;
  SimulatedNetwork network(model, {0, 1});
  std::vector<std::byte> sent(1000, std::byte{7});
  std::vector<std::byte> received(1000);
  messenger::Channel& out = network.messenger(0).open();
  messenger::Channel& in = network.messenger(1).open();
  bool begun[2]{};
  bool arrived = false;
  const Time time = network.run([&](int rank) {
    std::vector<messenger::Token> done;
    if (!std::exchange(begun[rank], true)) {
      if (rank == 0) out.send(1, 5, sent.data(), 1000, {});
      if (rank == 1) in.receive(0, 5, received.data(), 1000, {});
    }
    (rank == 0 ? out : in).progress(done);
    arrived |= rank == 1 && !done.empty();
    return false;
  });
  EXPECT_TRUE(arrived);
  EXPECT_EQ(sent, received);
  EXPECT_EQ(time, 2 * model.overhead + model.latency + model.gap + Time(1000));
}

}  // namespace
}  // namespace kolo::internal::simulation
