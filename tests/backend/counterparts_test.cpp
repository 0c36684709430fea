// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <vector>

#include "backend/internode/placement.hpp"

namespace kolo::internal::backend::internode {
namespace {

using testing::ElementsAre;

TEST(Counterparts, EachRankIsCaredForOnceOnEveryOtherHost) {
  // Hosts of three, one and two ranks; rank 4 takes no part.
  const std::vector<int> node_of{0, 1, 0, 3, 3, 0, 3};
  const std::vector<int> ranks{0, 1, 2, 3, 5, 6};
  const Placement placement = Placement::of(ranks, node_of);
  for (int target = 0; target < std::ssize(ranks); ++target) {
    const Counterparts of_target(ranks, placement, ranks[static_cast<std::size_t>(target)]);
    for (int host = 0; host < of_target.hosts(); ++host) {
      if (host == of_target.own_host()) continue;
      const int carer = of_target.on_behalf_of_this(host);
      const Counterparts of_carer(ranks, placement, ranks[static_cast<std::size_t>(carer)]);
      ASSERT_EQ(of_carer.own_host(), host);
      int found = 0;
      for (int place = 0; place < std::ssize(of_carer.local_peers()); ++place) {
        const std::vector<int> cared_for = of_carer.cared_for(place);
        if (std::ranges::find(cared_for, target) == cared_for.end()) continue;
        ++found;
        EXPECT_EQ(of_carer.local_peers()[static_cast<std::size_t>(place)], carer);
      }
      EXPECT_EQ(found, 1);
    }
  }
}

TEST(Counterparts, TheNextHostComesFirst) {
  const std::vector<int> node_of{0, 0, 2, 2, 4, 4};
  const std::vector<int> ranks{0, 1, 2, 3, 4, 5};
  const Counterparts counterparts(ranks, Placement::of(ranks, node_of), 3);
  EXPECT_THAT(counterparts.local_peers(), ElementsAre(2, 3));
  EXPECT_THAT(counterparts.cared_for(0), ElementsAre(4, 0));
  EXPECT_THAT(counterparts.cared_for(1), ElementsAre(5, 1));
  EXPECT_EQ(counterparts.on_behalf_of_this(0), 1);
  EXPECT_EQ(counterparts.on_behalf_of_this(2), 5);
}

}  // namespace
}  // namespace kolo::internal::backend::internode
