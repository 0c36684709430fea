// SPDX-License-Identifier: Apache-2.0
#include "base/rank_set.hpp"

#include <gmock/gmock.h>

#include <random>
#include <set>

namespace kolo::internal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

RankSet ranks(const std::vector<int>& members) {
  RankSet set;
  for (const int rank : members) set.insert(RankSet::of(rank));
  return set;
}

TEST(RankSet, IsEmptyAtFirst) {
  const RankSet none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.count(), 0);
  EXPECT_FALSE(none.contains(0));
  EXPECT_THAT(none.to_vector(), IsEmpty());
  EXPECT_EQ(to_string(none), "");
  EXPECT_EQ(RankSet::range(3, 2), none);
}

TEST(RankSet, JoinsWhatIsAdjacent) {
  const RankSet set = ranks({2, 0, 5, 1});
  EXPECT_THAT(set.ranges(), ElementsAre(RankSet::Range{0, 2}, RankSet::Range{5, 5}));
  EXPECT_EQ(to_string(set), "0-2, 5");
  EXPECT_EQ(set, ranks({5, 1, 0, 2}));
}

TEST(RankSet, InsertsRangesThatOverlap) {
  RankSet set = RankSet::range(10, 19);
  set.insert(RankSet::range(30, 39));
  set.insert(RankSet::range(15, 34));
  EXPECT_EQ(set, RankSet::range(10, 39));
  set.insert(RankSet::range(12, 13));
  EXPECT_EQ(set, RankSet::range(10, 39));
  set.insert(set);
  EXPECT_EQ(set, RankSet::range(10, 39));
}

TEST(RankSet, ComplementIsWhatIsLeftOfTheWorld) {
  EXPECT_EQ(ranks({0, 1, 4}).complement(6), ranks({2, 3, 5}));
  EXPECT_EQ(ranks({2}).complement(3), ranks({0, 1}));
  EXPECT_EQ(RankSet().complement(4), RankSet::range(0, 3));
  EXPECT_TRUE(RankSet::range(0, 3).complement(4).empty());
  EXPECT_TRUE(RankSet().complement(0).empty());
  EXPECT_EQ(ranks({1, 7}).complement(4), ranks({0, 2, 3}));
}

TEST(RankSet, AThousandConsecutiveRanksAreOneRange) {
  RankSet set;
  for (int rank = 999; rank >= 0; --rank) set.insert(RankSet::of(rank));
  EXPECT_THAT(set.ranges(), ElementsAre(RankSet::Range{0, 999}));
  EXPECT_EQ(set.count(), 1000);
}

TEST(RankSet, DoesWhatASetOfNumbersDoes) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::set<int> expected;
    RankSet set;
    for (int i = 0; i < 30; ++i) {
      const int first = static_cast<int>(random() % 60);
      const int last = first + static_cast<int>(random() % 4);
      set.insert(RankSet::range(first, last));
      for (int rank = first; rank <= last; ++rank) expected.insert(rank);
    }
    EXPECT_THAT(set.to_vector(), testing::ElementsAreArray(expected));
    EXPECT_EQ(set.count(), static_cast<int>(expected.size()));
    for (int rank = 0; rank < 70; ++rank) {
      EXPECT_EQ(set.contains(rank), expected.contains(rank)) << rank;
      EXPECT_EQ(set.complement(70).contains(rank), !expected.contains(rank)) << rank;
    }
    for (std::size_t i = 1; i < set.ranges().size(); ++i)
      EXPECT_GT(set.ranges()[i].first, set.ranges()[i - 1].last + 1);
  }
}

}  // namespace
}  // namespace kolo::internal
