// SPDX-License-Identifier: Apache-2.0
#include "backend/internode/algorithms.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <optional>
#include <vector>

#include "backend/internode/placement.hpp"
#include "base/failure.hpp"
#include "kolo/error.hpp"
#include "messenger/messenger.hpp"

namespace kolo::internal::backend::internode {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t small_elements = 1000;
constexpr std::int64_t middle_elements = 16'000;
constexpr std::int64_t large_elements = 200'000;

TEST(InterNodeAlgorithms, TwoHostsHaveNoChoice) {
  EXPECT_THAT(AlgorithmTable::candidates(2), IsEmpty());
  EXPECT_EQ(AlgorithmTable().select(2, large_elements, DType::f32), InterNodeAlgorithm::whole);
  EXPECT_EQ(AlgorithmTable().select(2, large_elements, DType::f16), InterNodeAlgorithm::direct);
}

TEST(InterNodeAlgorithms, WithoutATrialShortOnesAreSentWhole) {
  EXPECT_EQ(AlgorithmTable().select(3, small_elements, DType::f32), InterNodeAlgorithm::whole);
  EXPECT_EQ(AlgorithmTable().select(8, small_elements, DType::f32), InterNodeAlgorithm::whole);
  EXPECT_EQ(AlgorithmTable().select(9, small_elements, DType::f32), InterNodeAlgorithm::doubling);
  EXPECT_EQ(AlgorithmTable().select(3, middle_elements, DType::f32), InterNodeAlgorithm::direct);
  EXPECT_EQ(AlgorithmTable().select(3, large_elements, DType::f32), InterNodeAlgorithm::direct);
  EXPECT_EQ(AlgorithmTable().select(9, large_elements, DType::f32), InterNodeAlgorithm::halving);
}

TEST(InterNodeAlgorithms, HalfTypesCountAsWhatTheyAreCombinedIn) {
  // 16 KiB of f32.
  EXPECT_EQ(AlgorithmTable().select(3, 4096, DType::f16), InterNodeAlgorithm::whole);
  EXPECT_EQ(AlgorithmTable().select(3, 4097, DType::f16), InterNodeAlgorithm::direct);
}

TEST(InterNodeAlgorithms, TheQuickestOfEachSizeIsChosen) {
  ASSERT_THAT(AlgorithmTable::candidates(4),
              ElementsAre(InterNodeAlgorithm::whole, InterNodeAlgorithm::direct,
                          InterNodeAlgorithm::ring, InterNodeAlgorithm::doubling));
  const std::vector<std::vector<double>> seconds{{4, 3, 2, 1}, {4, 1, 2, 3}, {4, 2, 1, 3}};
  const AlgorithmTable algorithms(4, seconds);
  EXPECT_EQ(algorithms.select(4, small_elements, DType::f32), InterNodeAlgorithm::doubling);
  EXPECT_EQ(algorithms.select(4, middle_elements, DType::f32), InterNodeAlgorithm::direct);
  EXPECT_EQ(algorithms.select(4, large_elements, DType::f32), InterNodeAlgorithm::ring);
}

TEST(InterNodeAlgorithms, AmongManyHostsNothingIsSentWhole) {
  ASSERT_THAT(AlgorithmTable::candidates(9),
              ElementsAre(InterNodeAlgorithm::halving, InterNodeAlgorithm::ring,
                          InterNodeAlgorithm::doubling));
  const std::vector<std::vector<double>> seconds(3, {3.0, 2.0, 1.0});
  EXPECT_EQ(AlgorithmTable(9, seconds).select(9, small_elements, DType::f32),
            InterNodeAlgorithm::doubling);
}

TEST(InterNodeAlgorithms, ALittleFasterIsNotFasterEnough) {
  const std::vector<std::vector<double>> seconds(3, {1.0, 1.0, 0.9, 0.95});
  const AlgorithmTable algorithms(4, seconds);
  EXPECT_EQ(algorithms.select(4, small_elements, DType::f32), InterNodeAlgorithm::whole);
  EXPECT_EQ(algorithms.select(4, large_elements, DType::f32), InterNodeAlgorithm::direct);
}

TEST(InterNodeAlgorithms, OneForAll) {
  for (const int owners : {2, 3, 20})
    EXPECT_EQ(AlgorithmTable(InterNodeAlgorithm::ring).select(owners, small_elements, DType::bf16),
              InterNodeAlgorithm::ring);
}

TEST(PlacementCache, FindsAPlacementOncePerListAndKeepsFew) {
  PlacementCache cache({0, 0, 2, 2, 4});
  const std::vector<int> world{0, 1, 2, 3, 4};
  const Placement* const first = &cache.of(world);
  EXPECT_THAT(first->hosts, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
  EXPECT_EQ(&cache.of(world), first);
  EXPECT_EQ(cache.size(), 1);
  // Every non-empty set of five ranks: more lists than the cache keeps.
  for (int round = 0; round < 2; ++round) {
    for (unsigned set = 1; set < 32; ++set) {
      std::vector<int> ranks;
      for (int rank = 0; rank < 5; ++rank)
        if ((set >> static_cast<unsigned>(rank) & 1U) != 0) ranks.push_back(rank);
      EXPECT_EQ(cache.of(ranks).hosts, Placement::of(ranks, std::vector{0, 0, 2, 2, 4}).hosts);
      EXPECT_LE(cache.size(), PlacementCache::max_kept);
    }
  }
}

/// A rank whose peers neither send nor receive.
class SilentNetwork : public messenger::Messenger {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 4; }
  [[nodiscard]] messenger::Tag tag_count() const override { return 1000; }
  [[nodiscard]] messenger::Channel& open() override { return channel_; }
  [[nodiscard]] bool release(messenger::Channel& /*channel*/) noexcept override { return true; }
  bool progress() override { return false; }
  [[nodiscard]] bool may_sleep() override { return false; }
  [[nodiscard]] bool uses_memory() const override { return false; }
  [[nodiscard]] const Failure* loss() const override { return lost ? &*lost : nullptr; }
  void close(std::chrono::nanoseconds /*patience*/) noexcept override {}

  std::optional<Failure> lost{};

 private:
  class SilentChannel : public messenger::Channel {
   public:
    void send(int, messenger::Tag, const std::byte*, std::int64_t, messenger::Token) override {}
    void receive(int, messenger::Tag, std::byte*, std::int64_t, messenger::Token) override {}
    void progress(std::vector<messenger::Token>&) override {}
  };
  SilentChannel channel_{};
};

TEST(MeasureAlgorithms, EndsWithALostRankOrWhenItsCallerSaysSo) {
  const Placement placement{{{0, 1}, {2}, {3}}};
  SilentNetwork network;
  mpi::Endpoint endpoint(network, 60 << 10);
  int calls = 0;
  EXPECT_THROW(static_cast<void>(measure_algorithms(endpoint, placement,
                                                    [&] {
                                                      if (++calls == 3) throw BackendError("over");
                                                    })),
               BackendError);
  EXPECT_EQ(calls, 3);
  network.lost = Failure{FailureKind::peer_left, "rank 2 is gone", "", RankSet::of(2)};
  EXPECT_THROW(static_cast<void>(measure_algorithms(endpoint, placement, [] {})), PeerLeft);
}

}  // namespace
}  // namespace kolo::internal::backend::internode
