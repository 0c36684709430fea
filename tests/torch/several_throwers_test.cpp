// SPDX-License-Identifier: Apache-2.0
// Backward passes in which several ranks throw, with a hook of several operations.
#include "../support/halves_hook.hpp"
#include "support.hpp"

#include <memory>
#include <stdexcept>
#include <string>

namespace kolo::internal::testing_support {
namespace {

namespace optim = ::torch::optim;
using testing::HasSubstr;
using ::torch::Tensor;

// In each round all ranks but one throw: rank 0 when `early`'s first operation of a hook is
// pending, so that it refuses the second one, and others at once, so that they refuse the first.
class SeveralThrowersTest : public TorchTest {
 protected:
  Tensor early_ = parameter({1.0, 1.0});
  Tensor late_ = parameter({1.0});
  static constexpr double factor = 3.0;

  static DistributedOptimizer<optim::SGD> make(const Tensor& early, const Tensor& late,
                                               bool has_hook = true) {
    DistributedOptimizerOptions options;
    if (has_hook) options.hook = std::make_shared<HalvesHook>();
    return {optim::SGD({early, late}, 1.0), {{"early", early}, {"late", late}}, options};
  }

  /// The error of this rank's pass; "" if it has thrown itself, as it should.
  std::string run_one(Tensor& early, Tensor& late, int healthy) {
    const bool throws_at_once = rank() != 0 && rank() != healthy;
    Tensor x = late * factor;
    if (rank() == 0 && healthy != 0)
      x.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("bad hook"); });
    Tensor loss = (early.sum() * (rank() + 1.0) * x).sum();
    if (throws_at_once)
      loss.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("bad hook"); });
    try {
      loss.backward();
    } catch (const BackwardFailed& error) {
      return rank() == healthy && error.ranks().size() == 1 ? "" : error.what();
    } catch (const std::runtime_error& error) {
      return rank() != healthy && error.what() == std::string("bad hook") ? "" : error.what();
    }
    return size() == 1 ? "" : "nothing was thrown";
  }
  void expect_reduced(Tensor& early, Tensor& late) {
    for (Tensor* w : {&early, &late}) w->mutable_grad().reset();
    (early.sum() * (rank() + 1.0) * late * factor).sum().backward();
    expect_close(early.grad(), values({factor * mean_rank(), factor * mean_rank()}), 1e-2);
  }
};

TEST_F(SeveralThrowersTest, AreWaitedForByNobody) {
  for (const bool has_hook : {true, false}) {
    auto optimizer = make(early_, late_, has_hook);
    for (int round = 0; round < 2 * size(); ++round) {
      EXPECT_EQ(run_one(early_, late_, round % size()), "");
      barrier({.name = "none waits for the next pass"});
      // Some programs zero gradients where they catch the exception, others only before a pass.
      if ((round + rank()) % 2 == 0) optimizer.zero_grad();
      barrier({.name = "nor for zero_grad of the others"});
      optimizer.zero_grad();
      if (round % 3 != 0) continue;  // fails again
      expect_reduced(early_, late_);
      optimizer.skip_step();
    }
  }
}

TEST_F(SeveralThrowersTest, OfTwoOptimizersGoOnInAnyOrder) {
  Tensor other_early = parameter({1.0, 1.0});
  Tensor other_late = parameter({1.0});
  auto one = make(early_, late_);
  auto other = make(other_early, other_late);
  for (int round = 0; round < 2 * size(); ++round) {
    EXPECT_EQ(run_one(early_, late_, round % size()), "");
    EXPECT_EQ(run_one(other_early, other_late, round % size()), "");
    const bool begins_with_other = rank() == round % size();
    for (Tensor* w : {&early_, &late_, &other_early, &other_late}) w->mutable_grad().reset();
    // Backward begins with the term that was added last.
    const Tensor first = (early_.sum() * late_).sum() * (rank() + 1.0);
    const Tensor second = (other_early.sum() * other_late).sum() * (rank() + 1.0);
    (begins_with_other ? first * 1.0 + second : second * 1.0 + first).backward();
    expect_close(early_.grad(), values({mean_rank(), mean_rank()}));
    expect_close(other_early.grad(), values({mean_rank(), mean_rank()}));
    one.skip_step();
    other.skip_step();
  }
}

// The others learn of the exception, or that the rank has left.
TEST_F(SeveralThrowersTest, ARankThatLeavesAtOnceTellsWhy) {
  if (size() == 1) return;
  auto optimizer = make(early_, late_, /*has_hook=*/false);
  expect_reduced(early_, late_);
  optimizer.skip_step();
  const bool throws = rank() + 1 == size();
  Tensor loss = (early_.sum() * late_).sum();
  if (throws)
    loss.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("bad hook"); });
  try {
    loss.backward();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const PeerLeft& error) {
    EXPECT_THAT(error.what(), HasSubstr("Its last backward() has thrown"));
  } catch (const std::runtime_error& error) {
    const std::string expected = throws ? "bad hook" : "backward() has thrown on rank";
    EXPECT_THAT(error.what(), HasSubstr(expected));
  }
  kolo::shutdown();
}

TEST_F(SeveralThrowersTest, TheirOptimizersMayOutliveTheSession) {
  auto optimizer = make(early_, late_);
  EXPECT_EQ(run_one(early_, late_, 0), "");
  barrier({.name = "all have their errors"});
  kolo::shutdown();
  optimizer.zero_grad();
}

TEST_F(SeveralThrowersTest, MayMakeTheirOptimizersAnew) {
  for (int round = 0; round < 2 * size(); ++round) {
    auto optimizer = make(early_, late_);
    if (round % 2 == 1) expect_reduced(early_, late_);
    optimizer.zero_grad();
    EXPECT_EQ(run_one(early_, late_, round % size()), "");
    barrier({.name = "none waits for the end of the optimizers"});
  }
}

}  // namespace
}  // namespace kolo::internal::testing_support
