#include "session/breakdown.hpp"

#include <gmock/gmock.h>

#include "negotiation/codec.hpp"

namespace kolo::session {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Kind = Breakdown::Kind;

constexpr std::uint64_t session = 4711;

TEST(Breakdown, SaysWhoIsToBlameAndWhy) {
  for (const Kind kind : {Kind::peer_left, Kind::stalled}) {
    const auto told =
        decode_breakdown(session, encode(session, {kind, "it is gone", {2, 3, 70'000}}));
    ASSERT_TRUE(told);
    EXPECT_EQ(told->kind, kind);
    EXPECT_THAT(told->ranks, ElementsAre(2, 3, 70'000));
    EXPECT_EQ(told->reason, "it is gone");
  }
}

TEST(Breakdown, MayBeEmpty) {
  const auto told = decode_breakdown(session, encode(session, {Kind::stalled, "", {}}));
  ASSERT_TRUE(told);
  EXPECT_THAT(told->ranks, IsEmpty());
  EXPECT_EQ(told->reason, "");
}

TEST(Breakdown, OfARankIsItsLossToTheOthers) {
  const Breakdown own = Breakdown{Kind::backend, "no memory", {}}.as_seen_from_others(3);
  EXPECT_EQ(own.kind, Kind::peer_left);
  EXPECT_EQ(own.reason, "rank 3 cannot go on: no memory");
  EXPECT_THAT(own.ranks, ElementsAre(3));
  const Breakdown stall = Breakdown{Kind::stalled, "no answer", {2}}.as_seen_from_others(3);
  EXPECT_EQ(stall.kind, Kind::stalled);
  EXPECT_EQ(stall.reason, "no answer");
  EXPECT_THAT(stall.ranks, ElementsAre(2));
}

TEST(Breakdown, OfAnotherSessionIsNone) {
  EXPECT_FALSE(decode_breakdown(session + 1, encode(session, {Kind::peer_left, "gone", {2}})));
}

TEST(Breakdown, WhatIsDamagedIsNone) {
  transport::Message message = encode(session, {Kind::stalled, "", {2, 3}});
  for (std::size_t bytes = 0; bytes < message.size(); ++bytes)
    EXPECT_FALSE(decode_breakdown(session, std::span(message).first(bytes))) << bytes;
  transport::Message unmarked = message;
  unmarked.front() ^= std::byte{1};
  EXPECT_FALSE(decode_breakdown(session, unmarked));
  for (const Kind kind : {Kind::backend, Kind{3}}) {  // what nobody sends, and what there is not
    message[24] = static_cast<std::byte>(kind);
    EXPECT_FALSE(decode_breakdown(session, message));
  }
}

TEST(Breakdown, IsNoMessageOfTheNegotiation) {
  negotiation::Upward upward;
  upward.joins = {1, 2, 3};
  EXPECT_FALSE(decode_breakdown(session, negotiation::encode(session, upward)));
  EXPECT_THROW((void)negotiation::decode(encode(session, {Kind::peer_left, "gone", {2, 3}})),
               std::exception);
}

}  // namespace
}  // namespace kolo::session
