// SPDX-License-Identifier: Apache-2.0
// Decisions that the ranks of several hosts make alike: algorithm, order of the hosts, and
// placement.
#include "backend/internode/reduction.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "backend/internode/placement.hpp"

namespace kolo::internal::backend::internode {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(InterNodeAlgorithms, TwoHostsSendWholeSlicesUnlessResultsAreShorter) {
  EXPECT_EQ(select_algorithm(2, 200'000, DType::f32), InterNodeAlgorithm::whole);
  EXPECT_EQ(select_algorithm(2, 200'000, DType::f16), InterNodeAlgorithm::direct);
}

TEST(InterNodeAlgorithms, AFewHostsSendShortSlicesWhole) {
  EXPECT_EQ(select_algorithm(3, 2048, DType::f32), InterNodeAlgorithm::whole);
  EXPECT_EQ(select_algorithm(3, 2049, DType::f32), InterNodeAlgorithm::direct);
  EXPECT_EQ(select_algorithm(8, 585, DType::f32), InterNodeAlgorithm::whole);
  EXPECT_EQ(select_algorithm(8, 586, DType::f32), InterNodeAlgorithm::direct);
}

TEST(InterNodeAlgorithms, ManyHostsTakeStepsAfterOneAnother) {
  EXPECT_EQ(select_algorithm(9, 4096, DType::f32), InterNodeAlgorithm::doubling);
  EXPECT_EQ(select_algorithm(512, 4097, DType::f32), InterNodeAlgorithm::halving);
}

TEST(InterNodeAlgorithms, HalfTypesCountAsWhatTheyAreCombinedIn) {
  EXPECT_EQ(select_algorithm(9, 4096, DType::f16), InterNodeAlgorithm::doubling);
  EXPECT_EQ(select_algorithm(9, 4097, DType::bf16), InterNodeAlgorithm::halving);
}

TEST(HostOrder, HostsAreCombinedInGroupsByThePrimeFactors) {
  EXPECT_THAT(factors_of(1), IsEmpty());
  EXPECT_THAT(factors_of(7), ElementsAre(7));
  EXPECT_THAT(factors_of(100), ElementsAre(2, 2, 5, 5));
}

/// How hosts are combined, as a formula. A letter stands for each.
std::string formula(int hosts, int kept) {
  std::vector<std::string> texts;
  for (int host = 0; host < hosts; ++host) texts.emplace_back(1, static_cast<char>('a' + host));
  std::vector<std::byte*> inputs;
  for (std::string& text : texts) inputs.push_back(reinterpret_cast<std::byte*>(&text));
  const auto joined = [](const std::vector<const std::byte*>& group) {
    std::string sum;
    for (const std::byte* const one : group) sum += *reinterpret_cast<const std::string*>(one);
    return "(" + sum + ")";
  };
  const std::byte* const kept_input = kept < 0 ? nullptr : inputs[static_cast<std::size_t>(kept)];
  const auto last = combine_groups(inputs, kept_input,
                                   [&](const std::vector<const std::byte*>& group, std::byte* out) {
                                     EXPECT_NE(out, kept_input);
                                     *reinterpret_cast<std::string*>(out) = joined(group);
                                   });
  return joined(last);
}

TEST(HostOrder, GroupsAreOfNeighborsAndAnInputCanBeKept) {
  EXPECT_EQ(formula(3, -1), "(abc)");
  EXPECT_EQ(formula(6, -1), "((ab)(cd)(ef))");
  for (int kept = -1; kept < 8; ++kept) EXPECT_EQ(formula(8, kept), "(((ab)(cd))((ef)(gh)))");
}

TEST(HostOrder, LargeGroupsAreCombinedInPairs) {
  EXPECT_EQ(pairs_of(11), 3);
  EXPECT_EQ(pairs_of(8), 4);
  EXPECT_EQ(pairs_of(127), 63);
  EXPECT_EQ(formula(7, -1), "(abcdefg)");
  for (int kept = -1; kept < 11; ++kept)
    EXPECT_EQ(formula(11, kept), "((((ab)(cd))((ef)g))((hi)(jk)))");
  for (int kept = -1; kept < 13; ++kept)
    EXPECT_EQ(formula(13, kept), "((((ab)(cd))((ef)(gh)))(((ij)k)(lm)))");
  EXPECT_EQ(formula(22, -1), "(((((ab)(cd))((ef)(gh)))(((ij)(kl))(mn)))(((op)(qr))((st)(uv))))");
}

/// Steps that each combine the results of a group lead to the same sum on all owners.
TEST(HostOrder, StepsCombineTheSameGroups) {
  for (const int hosts : {2, 3, 4, 6, 8, 12, 18}) {
    std::vector<std::string> combined;
    for (int host = 0; host < hosts; ++host)
      combined.emplace_back(1, static_cast<char>('a' + host));
    for (const StepGroup& group : step_groups(hosts)) {
      std::vector<std::string> next;
      for (int own = 0; own < hosts; ++own) {
        Owners owners{.own = own};
        for (int rank = 0; rank < hosts; ++rank) owners.ranks.push_back(rank);
        std::string sum;
        for (int digit = 0; digit < group.factor; ++digit)
          sum += combined[static_cast<std::size_t>(group.rank_with(owners, digit))];
        next.push_back("(" + sum + ")");
      }
      combined = next;
    }
    for (const std::string& one : combined) EXPECT_EQ(one, formula(hosts, -1));
  }
}

TEST(PlacementCache, FindsAPlacementOncePerListAndKeepsFew) {
  PlacementCache cache({0, 0, 2, 2, 4}, /*own_rank=*/3);
  const std::vector<int> world{0, 1, 2, 3, 4};
  const Placement* const first = &cache.of(world);
  EXPECT_THAT(first->hosts, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
  EXPECT_EQ(&cache.of(world), first);
  EXPECT_EQ(cache.size(), 1);
  const auto counterparts = cache.counterparts(world);
  EXPECT_EQ(counterparts->own_host(), 1);
  EXPECT_EQ(cache.counterparts(world), counterparts);
  // Every non-empty set of five ranks: more lists than the cache keeps.
  for (int round = 0; round < 2; ++round) {
    for (unsigned set = 1; set < 32; ++set) {
      std::vector<int> ranks;
      for (int rank = 0; rank < 5; ++rank)
        if ((set >> static_cast<unsigned>(rank) & 1U) != 0) ranks.push_back(rank);
      EXPECT_EQ(cache.of(ranks).hosts, Placement::of(ranks, std::vector{0, 0, 2, 2, 4}).hosts);
      if (std::ranges::find(ranks, 3) != ranks.end()) {
        EXPECT_EQ(cache.counterparts(ranks)->local_peers().size(),
                  ranks.size() > 1 && (set & 4U) != 0 ? 2U : 1U);
      }
      EXPECT_LE(cache.size(), PlacementCache::max_kept);
    }
  }
  EXPECT_EQ(counterparts->hosts(), 3);  // kept for whoever uses them
}

TEST(Placement, KnowsTheHostOfEachRank) {
  const Placement placement = Placement::of(std::vector{0, 2, 3, 5}, std::vector{0, 1, 0, 3, 3, 3});
  EXPECT_THAT(placement.hosts, ElementsAre(ElementsAre(0, 2), ElementsAre(3, 5)));
  for (const auto& [rank, host] :
       {std::pair(0, 0), {1, -1}, {2, 0}, {3, 1}, {4, -1}, {5, 1}, {6, -1}})
    EXPECT_EQ(placement.host_of(rank), host) << rank;
  EXPECT_EQ(placement.host_sizes, std::pair(2, 2));
  EXPECT_TRUE(placement.shares_hosts());
}

}  // namespace
}  // namespace kolo::internal::backend::internode
