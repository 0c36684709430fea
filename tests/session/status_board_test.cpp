// SPDX-License-Identifier: Apache-2.0
// The page of a rank whose status does not fit into it.
#include "session/engine/status_board.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace kolo::internal::session {
namespace {

using negotiation::RankStatus;
using testing::EndsWith;
using testing::StartsWith;

class Board : public testing::Test {
 protected:
  static constexpr int ranks = 4000;
  const StatusBoard::TimePoint now_{std::chrono::hours(1)};

  [[nodiscard]] RankStatus read() const { return board_.read_rank(0, now_); }

  /// Every second rank: each is a range of its own.
  static RankSet scattered() {
    RankSet set;
    for (int rank = 0; rank < ranks; rank += 2) set.insert(RankSet::of(rank));
    return set;
  }

  std::unique_ptr<node::StatusPage> page_ = std::make_unique<node::StatusPage>();
  StatusBoard board_{{{0, 1, page_.get(), nullptr}}, 0, ranks};
};

TEST_F(Board, AReasonWithManyCulpritsIsReadable) {
  board_.publish({.pending = 1}, now_, now_);
  board_.publish_end(
      {FailureKind::peer_left, std::string(5000, 'm'), std::string(5000, 't'), scattered()},
      /*alarm=*/false, now_);
  const RankStatus status = read();
  ASSERT_TRUE(status.ended);
  EXPECT_EQ(status.ended->kind, FailureKind::peer_left);
  EXPECT_THAT(status.ended->message, StartsWith("mmm"));
  EXPECT_THAT(status.ended->message, EndsWith("..."));
  EXPECT_TRUE(status.ended->ranks.contains(0));  // as many as there is room for
  EXPECT_TRUE(status.ended->ranks.without(scattered()).empty());
}

TEST_F(Board, AFailureReplacesADepartureAndNothingReplacesAFailure) {
  const auto end = [&](FailureKind kind, const char* reason) {
    board_.publish_end({kind, reason, "", RankSet::of(0)}, /*alarm=*/false, now_);
    return read().ended->message;
  };
  EXPECT_EQ(end(FailureKind::shut_down, "done"), "done");
  EXPECT_EQ(end(FailureKind::shut_down, "done again"), "done");
  EXPECT_EQ(end(FailureKind::peer_left, "the cable is cut"), "the cable is cut");
  EXPECT_EQ(end(FailureKind::stalled, "too late"), "the cable is cut");
  EXPECT_EQ(end(FailureKind::shut_down, "done"), "the cable is cut");
}

TEST_F(Board, NobodyIsSilentForLongerThanThisRankHasRunAfterAPause) {
  board_.publish({}, now_, now_);
  EXPECT_EQ(board_.read_rank(0, now_ + std::chrono::minutes(1)).heard, std::chrono::minutes(1));
  board_.begin_anew(now_ + std::chrono::minutes(1));
  const RankStatus status = board_.read_rank(0, now_ + std::chrono::seconds(61));
  EXPECT_EQ(status.heard, std::chrono::seconds(1));
}

TEST_F(Board, AStatusThatDoesNotFitReplacesTheOldOneInPart) {
  board_.publish({.pending = 1, .batch = "batch 1"}, now_, now_);
  RankStatus status{.pending = 8,
                    .batch = "batch 2 (" + std::string(10'000, 'x'),
                    .awaits = std::string(10'000, 'y'),
                    .awaited = scattered()};
  for (int i = 0; i < 8; ++i)
    status.operations.push_back({{.name = std::string(10'000, 'n')}, {}, {}});
  board_.publish(status, now_, now_);
  EXPECT_EQ(read().pending, 8);
  EXPECT_THAT(read().batch, StartsWith("batch 2 (xxx"));
  EXPECT_TRUE(read().awaited.contains(0));
}

TEST_F(Board, NoCharacterIsCut) {
  std::string name = "\u00e4";
  while (name.size() < 1000) name += "\u00e4";
  for (const std::string& text : {name, "x" + name}) {
    board_.publish({.pending = 1, .operations = {{{.name = text}, {}, {}}}}, now_, now_);
    std::string got = read().operations.at(0).key.name;
    ASSERT_THAT(got, EndsWith("..."));
    got.resize(got.size() - 3);
    EXPECT_EQ((got.size() - (text.size() % 2)) % 2, 0U);
  }
}

}  // namespace
}  // namespace kolo::internal::session
