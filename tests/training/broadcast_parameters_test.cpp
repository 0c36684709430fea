// SPDX-License-Identifier: Apache-2.0
// broadcast_parameters, of named tensors.
#include <cstdint>
#include <vector>

#include "../session/fixture.hpp"
#include "kolo/optimizer.hpp"

namespace kolo::internal {
namespace {

using testing::Each;
using testing::HasSubstr;

class BroadcastParameters : public WithSession {
 protected:
  std::vector<float> a_ = std::vector<float>(7, static_cast<float>(me_));
  std::vector<std::int64_t> b_ = std::vector<std::int64_t>(3, me_);
};

TEST_F(BroadcastParameters, FromEveryRoot) {
  for (int root = 0; root < n_; ++root) {
    a_.assign(7, static_cast<float>(me_));
    b_.assign(3, me_);
    broadcast_parameters({{"a", a_}, {"b", b_}}, root);
    EXPECT_THAT(a_, Each(static_cast<float>(root)));
    EXPECT_THAT(b_, Each(root));
  }
  broadcast_parameters({}, 0);
}

TEST_F(BroadcastParameters, InASet) {
  const ProcessSet set = add_process_set({last_});
  if (set.rank() >= 0) broadcast_parameters({{"a", a_}}, last_, set);
  EXPECT_THAT(a_, Each(static_cast<float>(me_)));
  expect_usable();
}

TEST_F(BroadcastParameters, ADifferenceIsAMismatchOnAllAndChangesNothing) {
  if (n_ == 1) GTEST_SKIP() << "one rank cannot disagree";
  if (me_ == last_) b_.resize(4, me_);
  const auto error = thrown_by<Mismatch>([&] { broadcast_parameters({{"a", a_}, {"b", b_}}, 0); });
  EXPECT_EQ(error.tensor(), "b");
  EXPECT_EQ(error.ranks(), std::vector{last_});
  EXPECT_THAT(error.what(), HasSubstr("[3]"));
  EXPECT_THAT(error.what(), HasSubstr("[4]"));
  EXPECT_THAT(a_, Each(static_cast<float>(me_)));
  EXPECT_THAT(b_, Each(me_));
  broadcast_parameters({{"a", a_}}, 0);
  EXPECT_THAT(a_, Each(0.0F));
}

TEST_F(BroadcastParameters, WrongArgumentsAreRefused) {
  EXPECT_THROW(broadcast_parameters({{"a", a_}}, n_), InvalidArgument);
  EXPECT_THROW(broadcast_parameters({{"a", a_}, {"a", b_}}, 0), InvalidArgument);
  EXPECT_THROW(broadcast_parameters({{"", a_}}, 0), InvalidArgument);
  expect_usable();
}

}  // namespace
}  // namespace kolo::internal
