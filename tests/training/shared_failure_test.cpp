// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>
#include <string>

#include "../session/fixture.hpp"

namespace kolo::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SharedFailure : public WithSession {};

TEST_F(SharedFailure, NobodyIsToldOfNone) {
  int calls = 0;
  on_every_rank([&] { ++calls; });
  on_one_rank(last_, [&] { ++calls; });
  EXPECT_EQ(calls, me_ == last_ ? 2 : 1);
  expect_usable();
}

TEST_F(SharedFailure, OfOneRankIsThrownOnEveryRank) {
  const Error error = thrown_by<Error>([&] {
    on_every_rank([&] {
      if (me_ == last_) throw std::runtime_error("no such file");
    });
  });
  EXPECT_THAT(error.what(), HasSubstr("no such file (on rank " + std::to_string(last_) + ")"));
  EXPECT_THAT(error.ranks(), ElementsAre(last_));
  expect_usable();
}

TEST_F(SharedFailure, OfAllRanksIsTheFirstRanks) {
  const Error error = thrown_by<Error>([&] {
    on_every_rank([&] { throw std::runtime_error("rank " + std::to_string(me_) + " failed"); });
  });
  EXPECT_THAT(error.what(), HasSubstr("rank 0 failed (on rank" +
                                      (n_ == 1 ? " 0)" : "s 0-" + std::to_string(last_) + ')')));
  EXPECT_EQ(error.ranks(), ranks());
}

TEST_F(SharedFailure, OfTheChosenRankIsThrownOnEveryRank) {
  for (int root = 0; root < n_; ++root) {
    const Error error = thrown_by<Error>([&] {
      on_one_rank(root, [&] { throw InvalidArgument("failed on " + std::to_string(me_)); });
    });
    EXPECT_THAT(error.what(), HasSubstr("failed on " + std::to_string(root)));
    EXPECT_THAT(error.ranks(), ElementsAre(root));
  }
  expect_usable();
}

TEST_F(SharedFailure, MayBeAnything) {
  EXPECT_THROW(on_every_rank([] { throw 42; }), Error);
  EXPECT_THROW(on_one_rank(0, [] { throw std::runtime_error(""); }), Error);
  expect_usable();
}

TEST_F(SharedFailure, OfASetIsThrownInTheSet) {
  const ProcessSet first = add_process_set({0});
  if (me_ == 0) {
    EXPECT_THROW(on_one_rank(
                     0, [] { throw std::runtime_error("x"); }, first),
                 Error);
    on_every_rank([] {}, first);
  } else {
    EXPECT_THROW(on_one_rank(
                     me_, [] {}, first),
                 InvalidArgument);
  }
  expect_usable();
}

TEST_F(SharedFailure, WhatEndsTheSessionIsPassedOnAsItIs) {
  if (n_ == 1) {
    EXPECT_THROW(on_one_rank(0, [] { throw PeerLeft("gone", {}, {7}); }), PeerLeft);
  }
}

}  // namespace
}  // namespace kolo::internal
