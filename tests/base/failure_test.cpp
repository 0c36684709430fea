// SPDX-License-Identifier: Apache-2.0
#include "base/failure.hpp"

#include <gmock/gmock.h>

#include "kolo/error.hpp"

namespace kolo::internal {
namespace {

using testing::ElementsAre;

TEST(Failure, OfARanksOwnErrorIsItsLossToTheOthers) {
  const Failure seen = as_seen_by_others({FailureKind::backend, "no memory"}, 3);
  EXPECT_EQ(seen, (Failure{FailureKind::peer_left, "rank 3 cannot go on: no memory", "",
                           RankSet::of(3)}));
  const Failure stall{FailureKind::stalled, "no answer", "x", RankSet::of(2)};
  EXPECT_EQ(as_seen_by_others(stall, 3), stall);
}

template <typename Exception>
void expect_thrown(FailureKind kind) {
  const Failure failure{kind, "why", "weight", RankSet::range(2, 3)};
  try {
    std::rethrow_exception(to_exception(failure));
  } catch (const Exception& error) {
    EXPECT_STREQ(error.what(), "why");
    EXPECT_EQ(error.tensor(), "weight");
    EXPECT_THAT(error.ranks(), ElementsAre(2, 3));
  }
}

TEST(Failure, OfEachKindHasItsException) {
  expect_thrown<Mismatch>(FailureKind::mismatch);
  expect_thrown<PeerLeft>(FailureKind::peer_left);
  expect_thrown<Stalled>(FailureKind::stalled);
  expect_thrown<ShutDown>(FailureKind::shut_down);
  expect_thrown<BackendError>(FailureKind::backend);
}

}  // namespace
}  // namespace kolo::internal
