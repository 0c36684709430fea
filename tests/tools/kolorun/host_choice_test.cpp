// SPDX-License-Identifier: Apache-2.0
#include "kolorun/hosts/host_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace kolorun {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using enum HostState;

constexpr int many = 1000;

TEST(HostChoice, TakesTheFirstHostsWithEnoughSlots) {
  const std::vector<HostCandidate> hosts{{spare, 4}, {spare, 4}, {spare, 4}, {spare, 4}};
  EXPECT_THAT(choose_hosts(hosts, 0, many), IsEmpty());
  EXPECT_THAT(choose_hosts(hosts, 4, many), ElementsAre(0));
  EXPECT_THAT(choose_hosts(hosts, 5, many), ElementsAre(0, 1));
  EXPECT_THAT(choose_hosts(hosts, 100, many), ElementsAre(0, 1, 2, 3));
}

TEST(HostChoice, LeavesOutHostsThatCannotHaveAnAgentNow) {
  const std::vector<HostCandidate> hosts{{other, 4}, {spare, 4}, {other, 4}, {spare, 4}};
  EXPECT_THAT(choose_hosts(hosts, 4, many), ElementsAre(1));
  EXPECT_THAT(choose_hosts(hosts, 8, many), ElementsAre(1, 3));
}

TEST(HostChoice, CountsTheSlotsOfHostsThatAreStarting) {
  const std::vector<HostCandidate> hosts{{starting, 4}, {restarting, 2}, {spare, 4}, {spare, 4}};
  EXPECT_THAT(choose_hosts(hosts, 6, many), IsEmpty());
  EXPECT_THAT(choose_hosts(hosts, 7, many), ElementsAre(2));
}

TEST(HostChoice, StartsNoMoreThanTheFanoutAtTheSameTime) {
  const std::vector<HostCandidate> hosts{{starting, 1}, {spare, 1}, {spare, 1}, {spare, 1}};
  EXPECT_THAT(choose_hosts(hosts, 4, 1), IsEmpty());
  EXPECT_THAT(choose_hosts(hosts, 4, 3), ElementsAre(1, 2));
}

TEST(HostChoice, CountsNoLocalAgentInTheFanout) {
  const std::vector<HostCandidate> hosts{
      {starting, 1, true}, {spare, 1}, {spare, 1, true}, {spare, 1}};
  EXPECT_THAT(choose_hosts(hosts, 4, 1), ElementsAre(1, 2));
}

// The place of a host in the list is the place of its ranks.
TEST(HostChoice, GivesTheSlotsOfAHostThatWaitsForItsTurnToNoOther) {
  const std::vector<HostCandidate> hosts{{spare, 2}, {spare, 2}, {spare, 2, true}};
  EXPECT_THAT(choose_hosts(hosts, 4, 1), ElementsAre(0));
}

}  // namespace
}  // namespace kolorun
