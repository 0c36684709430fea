// SPDX-License-Identifier: Apache-2.0
// Parameters that differ between the ranks: in the steps of a custom optimizer, and on request.
#include <array>
#include <span>
#include <stdexcept>
#include <vector>

#include "../session/fixture.hpp"
#include "kolo/optimizer.hpp"
#include "kolo/sharded_optimizer.hpp"
#include "training/parameter_hashes.hpp"

namespace kolo::internal {
namespace {

using testing::Each;
using testing::HasSubstr;

/// Two parameters with their gradients.
struct Trainer {
  std::vector<float> a = std::vector<float>(7, 1.0F), b = std::vector<float>(5, 2.0F);
  std::vector<float> of_a = std::vector<float>(7), of_b = std::vector<float>(5);
  int steps = 0;
  bool throws = false;

  std::vector<NamedTensor> parameters() {
    if (throws) throw std::runtime_error("no parameters");
    return {{"a", a}, {"b", b}};
  }
  std::vector<NamedTensor> gradients() { return {{"a", of_a}, {"b", of_b}}; }
  void step() { ++steps; }
  void step(std::span<const Shard> /*shards*/) { ++steps; }
};

struct WithoutParameters {
  std::vector<float> of_a = std::vector<float>(7);
  std::vector<NamedTensor> gradients() { return {{"a", of_a}}; }
  void step() {}
};

class EqualParameters : public WithSession {
 protected:
  /// One step, in which the ranks' gradients are their numbers.
  template <typename Optimizer>
  void step(Optimizer& optimizer) {
    trainer_.of_a.assign(7, static_cast<float>(me_));
    optimizer.step();
  }
  template <typename Optimizer>
  void expect_refused(Optimizer& optimizer, const char* parameter, const std::vector<int>& ranks) {
    const auto error = thrown_by<Mismatch>([&] { step(optimizer); });
    EXPECT_EQ(error.tensor(), parameter);
    EXPECT_EQ(error.ranks(), ranks);
    EXPECT_THAT(error.what(), HasSubstr("broadcast_parameters"));
    EXPECT_THAT(error.what(), HasSubstr("compare.except"));
  }

  void SetUp() override {
    if (n_ == 1) GTEST_SKIP() << "one rank cannot differ";
  }

  Trainer trainer_;
};

TEST_F(EqualParameters, PassAndAreComparedNoMore) {
  DistributedOptimizer optimizer(trainer_);
  for (int i = 0; i < 4; ++i) {
    step(optimizer);
    EXPECT_THAT(trainer_.of_a, Each(static_cast<float>(n_ - 1) / 2));
    trainer_.b[4] = static_cast<float>(me_);  // from now on they differ
  }
  EXPECT_EQ(trainer_.steps, 4);
}

TEST_F(EqualParameters, DifferentOnesAreRefusedAtTheFirstStep) {
  if (me_ == last_) trainer_.b[4] = 2.5F;
  DistributedOptimizer optimizer(trainer_);
  expect_refused(optimizer, "b", {last_});
  EXPECT_EQ(trainer_.steps, 0);
  broadcast_parameters(trainer_.parameters(), 0);
  step(optimizer);
  EXPECT_EQ(trainer_.steps, 1);
}

// It abstains with as many numbers as the others send, also if the option names a parameter twice.
TEST_F(EqualParameters, ARankThatCannotReadItsOwnDoesNotHoldUpTheOthers) {
  for (const std::vector<std::string>& except :
       std::vector<std::vector<std::string>>{{}, {"b", "b"}}) {
    DistributedOptimizer optimizer(trainer_, {.compare = {.except = except}});
    trainer_.throws = me_ == last_;
    if (me_ == last_) {
      EXPECT_THROW(step(optimizer), std::runtime_error);
    } else {
      step(optimizer);
    }
    trainer_.throws = false;
    expect_usable();
  }
}

TEST_F(EqualParameters, AreComparedWithTheFirstRank) {
  std::vector<int> others = ranks();
  others.erase(others.begin());
  if (me_ == 0) trainer_.a[0] = -1.0F;
  DistributedOptimizer optimizer(trainer_);
  expect_refused(optimizer, "a", others);
  expect_usable();
}

TEST_F(EqualParameters, MayBeBroadcastAfterTheOptimizerIsMade) {
  trainer_.a.assign(7, static_cast<float>(me_));
  DistributedOptimizer optimizer(trainer_);
  broadcast_parameters(trainer_.parameters(), last_);
  step(optimizer);
  EXPECT_EQ(trainer_.steps, 1);
}

TEST_F(EqualParameters, MayDifferIfTheyAreNamed) {
  trainer_.b[0] = static_cast<float>(me_);
  DistributedOptimizer optimizer(trainer_, {.compare = {.except = {"b"}}});
  step(optimizer);
  EXPECT_THROW(DistributedOptimizer(trainer_, {.compare = {.except = {"c"}}}), InvalidArgument);
}

TEST_F(EqualParameters, AreNotComparedIfTheProgramSaysSo) {
  trainer_.b[0] = static_cast<float>(me_);
  DistributedOptimizer optimizer(trainer_, {.compare = {.at_start = false}});
  step(optimizer);
  EXPECT_EQ(trainer_.steps, 1);
}

TEST_F(EqualParameters, AreComparedEveryNPasses) {
  DistributedOptimizer optimizer(trainer_, {.compare = {.every = 3}});
  for (int pass = 0; pass < 3; ++pass) step(optimizer);
  if (me_ == last_) trainer_.a[3] = 0.0F;
  expect_refused(optimizer, "a", {last_});
  step(optimizer);
  step(optimizer);
  expect_refused(optimizer, "a", {last_});
}

TEST_F(EqualParameters, OfJoinedRanksAreNotCompared) {
  if (me_ == last_) trainer_.a[3] = 0.0F;
  DistributedOptimizer optimizer(trainer_, {.compare = {.every = 2}});
  if (me_ != last_)
    for (int i = 0; i < 5; ++i) step(optimizer);
  join();
  step(optimizer);  // counted from the join
  EXPECT_EQ(trainer_.steps, me_ == last_ ? 1 : 6);
  step(optimizer);
  expect_refused(optimizer, "a", {last_});
}

TEST_F(EqualParameters, AreThoseOfTheProcessSet) {
  if (n_ == 2) GTEST_SKIP() << "needs a set of several ranks";
  std::vector<int> members = ranks();
  members.pop_back();
  const ProcessSet set = add_process_set(members);
  if (me_ == last_) trainer_.a[3] = 0.0F;
  if (me_ == 1) trainer_.b[3] = 0.0F;
  DistributedOptimizer optimizer(trainer_, {.process_set = set});
  if (me_ == last_) {
    step(optimizer);
  } else {
    expect_refused(optimizer, "b", {1});
  }
  expect_usable();
}

TEST_F(EqualParameters, AreComparedAgainAfterRejoin) {
  DistributedOptimizer optimizer(trainer_);
  step(optimizer);
  if (me_ == last_) trainer_.a[3] = 0.0F;
  optimizer.rejoin();
  expect_refused(optimizer, "a", {last_});
}

TEST_F(EqualParameters, OfAShardedOptimizer) {
  if (me_ == last_) trainer_.b[4] = 2.5F;
  ShardedOptimizer optimizer(trainer_);
  expect_refused(optimizer, "b", {last_});
  broadcast_parameters(trainer_.parameters(), 0);
  step(optimizer);
  EXPECT_EQ(trainer_.steps, 1);
}

TEST_F(EqualParameters, WrongOptionsAreRefused) {
  WithoutParameters without;
  EXPECT_THROW(DistributedOptimizer(without, {.compare = {.every = 1}}), InvalidArgument);
  EXPECT_THROW(DistributedOptimizer(without, {.compare = {.except = {"a"}}}), InvalidArgument);
  EXPECT_THROW(DistributedOptimizer(trainer_, {.compare = {.every = -1}}), InvalidArgument);
  const auto error = thrown_by<Mismatch>(
      [&] { DistributedOptimizer(trainer_, {.compare = {.every = 5 + (me_ == last_ ? 1 : 0)}}); });
  EXPECT_THAT(error.what(), HasSubstr("every 5"));
}

TEST_F(EqualParameters, OfOtherNamesAreRefusedAtConstruction) {
  struct Renamed : Trainer {
    explicit Renamed(bool renames) : name(renames ? "c" : "b") {}
    const char* name;
    std::vector<NamedTensor> parameters() { return {{"a", a}, {name, b}}; }
  } renamed(me_ == last_);
  const auto error = thrown_by<Mismatch>([&] { DistributedOptimizer optimizer(renamed); });
  EXPECT_THAT(error.what(), HasSubstr("parameter b"));
}

TEST_F(EqualParameters, OnRequest) {
  require_equal(trainer_.parameters());
  require_equal({});
  if (me_ == last_) trainer_.b[0] = -2.0F;
  const auto error = thrown_by<Mismatch>([&] { require_equal(trainer_.parameters()); });
  EXPECT_EQ(error.tensor(), "b");
  EXPECT_EQ(error.ranks(), std::vector{last_});
  EXPECT_THAT(error.what(), HasSubstr("Differing from rank 0: "));
  require_equal({{"a", trainer_.a}});
  if (me_ == last_) trainer_.a.pop_back();
  EXPECT_THROW(require_equal(trainer_.parameters()), Mismatch);
  EXPECT_THROW(require_equal({{"", trainer_.a}}), InvalidArgument);
  expect_usable();
}

TEST(Hashes, DifferForEveryBit) {
  std::array<std::byte, 75> bytes{};
  std::vector<std::uint64_t> hashes{hash_of(bytes), hash_of(std::span(bytes).first(74))};
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::array<std::byte, 75> changed = bytes;
    changed[bit / 8] |= std::byte{1} << bit % 8;
    hashes.push_back(hash_of(changed));
    // The same bit in the next word of the same lane must not undo the change.
    if (bit / 8 + 32 >= bytes.size()) continue;
    changed[bit / 8 + 32] |= std::byte{1} << bit % 8;
    hashes.push_back(hash_of(changed));
  }
  std::ranges::sort(hashes);
  EXPECT_EQ(std::ranges::adjacent_find(hashes), hashes.end());
}

}  // namespace
}  // namespace kolo::internal
