// SPDX-License-Identifier: Apache-2.0
// kolo::DistributedOptimizer for a custom optimizer: joins, skipped steps, and moved gradients.
#include <algorithm>
#include <functional>
#include <optional>
#include <span>

#include "../session/fixture.hpp"
#include "../support/world.hpp"
#include "kolo/optimizer.hpp"

#ifdef KOLO_TEST_MPI
#include "kolo/mpi.hpp"
#endif

namespace kolo::internal {
namespace {

using testing::Each;
using testing::HasSubstr;

/// `layers` gradients of one to three elements. The step adds them to the weight.
struct Layers {
  explicit Layers(std::size_t layers = 3) {
    for (std::size_t i = 0; i < layers; ++i) values.emplace_back(i % 3 + 1);
  }

  std::vector<NamedTensor> gradients() {
    ++listed;
    std::vector<NamedTensor> all;
    for (std::size_t i = 0; i < values.size(); ++i) all.push_back({name(i), values[i]});
    return all;
  }
  void step() { weight += values.front().front(); }

  void fill(double value) {
    for (auto& gradient : values) std::fill(gradient.begin(), gradient.end(), value);
  }
  static std::string name(std::size_t i) { return "layer" + std::to_string(i); }

  std::vector<std::vector<double>> values;
  double weight = 0.0;
  int listed = 0;
};

class OptimizerSteps : public WithSession {
 protected:
  /// Steps of `rank` before it joins: at least one, and another order of ranks in each epoch.
  [[nodiscard]] int steps_of(int rank, int epoch) const { return 1 + (rank + epoch) % n_ * 2; }

  /// The average, over all ranks, of rank + 1 on the ranks that take part in a step.
  [[nodiscard]] double average_in(int step, int epoch) const {
    double sum = 0.0;
    for (int rank = 0; rank < n_; ++rank)
      if (step < steps_of(rank, epoch)) sum += rank + 1.0;
    return sum / n_;
  }

  void expect_average(DistributedOptimizer<Layers>& optimizer) {
    layers_.fill(me_ + 1.0);
    optimizer.step();
    for (const auto& gradient : layers_.values) EXPECT_THAT(gradient, Each(mean_));
  }

  const double mean_ = (n_ + 1) / 2.0;
  Layers layers_;
};

TEST_F(OptimizerSteps, AreTheSameOnAllRanksAfterEachEpochOfUnevenData) {
  DistributedOptimizer optimizer(layers_);
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (int step = 0; step < steps_of(me_, epoch); ++step) {
      layers_.fill(me_ + 1.0);
      if (me_ % 2 == 0) optimizer.ready("layer1");
      optimizer.step();
      for (const auto& gradient : layers_.values)
        EXPECT_THAT(gradient, Each(testing::DoubleNear(average_in(step, epoch), 1e-12)));
    }
    (void)join();
    // Epochs of different length may follow each other, also without a join.
    if (epoch == 2) expect_average(optimizer);
  }
  expect_average(optimizer);
}

TEST_F(OptimizerSteps, OfARankThatLeavesInsteadOfJoiningAreCounted) {
  if (n_ == 1) GTEST_SKIP() << "needs several ranks";
  DistributedOptimizer optimizer(layers_);
  for (int step = 0; step < 2; ++step) expect_average(optimizer);
  if (me_ == last_) return;  // the session ends, as at the end of main
  const auto error = thrown_by<PeerLeft>([&] { optimizer.step(); });
  EXPECT_THAT(error.what(), HasSubstr("left the session: it ended its session after 2 passes that "
                                      "reduced gradients. If it has run out of data, call "
                                      "kolo::join() on all ranks after their last step"));
  EXPECT_THAT(error.what(), testing::EndsWith("This rank has made 3 such passes"));
}

TEST_F(OptimizerSteps, OfSeveralOptimizersAndPassesMatchAfterUnevenData) {
  Layers other;
  Layers last;
  DistributedOptimizer passes(layers_, {.backward_passes_per_step = 2, .num_groups = 2});
  DistributedOptimizer sum(other, {.op = ReduceOp::sum});
  const ProcessSet set = add_process_set({0});
  DistributedOptimizer in_set(last, {.process_set = set});
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int step = 0; step < steps_of(me_, epoch); ++step) {
      passes.end_pass();
      layers_.fill(me_ + 1.0);
      passes.step();
      EXPECT_NEAR(layers_.values[2][2], average_in(step, epoch), 1e-12);
      // The second optimizer steps half as often.
      if (step % 2 == 0) {
        other.fill(me_ + 1.0);
        sum.step();
        EXPECT_NEAR(other.values[2][2], n_ * average_in(step, epoch), 1e-12);
      }
      last.fill(5.0);
      in_set.step();
      EXPECT_THAT(last.values[2], Each(5.0));
    }
    (void)join();
  }
}

TEST_F(OptimizerSteps, ASynchronizedStepMayEndAfterTheJoin) {
  DistributedOptimizer optimizer(layers_);
  for (int round = 0; round < 2; ++round) {
    layers_.fill(me_ + 1.0);
    if (me_ != last_) optimizer.synchronize();
    (void)join();
    if (me_ != last_) optimizer.step();
    expect_average(optimizer);
  }
}

// One rank stops after some gradients of a step: the others have completed what it submitted.
TEST_F(OptimizerSteps, AStepThatIsCutByAJoinIsDropped) {
  DistributedOptimizer optimizer(layers_);
  for (const std::string next : {"step", "ready", "skip", "step"}) {
    const bool cut = me_ == last_;
    layers_.fill(100.0);
    if (cut) optimizer.ready("layer1");
    (void)join();
    if (next == "skip") optimizer.skip_step();  // on all ranks
    if (next == "step" && cut) {
      EXPECT_THAT(thrown_by<InvalidArgument>([&] { optimizer.step(); }).what(),
                  HasSubstr("join() was called in the middle of a step"));
    }
    if (next == "ready") layers_.fill(me_ + 1.0);
    if (next == "ready") optimizer.ready("layer1");
    if (next == "ready") optimizer.step();
    expect_average(optimizer);
    expect_average(optimizer);
  }
}

// One rank stops after a pass of which nothing was submitted: the others know of no step to end.
TEST_F(OptimizerSteps, PassesBeforeAJoinAreForgotten) {
  DistributedOptimizer optimizer(
      layers_, {.backward_passes_per_step = 2, .accumulation = Accumulation::mean});
  for (const bool skips : {true, false}) {
    const bool cut = me_ == last_;
    if (cut) optimizer.ready("layer1");
    if (cut) optimizer.end_pass();
    (void)join();
    if (skips) optimizer.skip_step();
    for (int step = 0; step < 2; ++step) {
      layers_.fill(2.0 * (me_ + 1));
      optimizer.ready("layer0");
      optimizer.end_pass();
      optimizer.ready("layer1");
      optimizer.step();
      for (const auto& gradient : layers_.values) EXPECT_THAT(gradient, Each(mean_));
    }
  }
}

TEST_F(OptimizerSteps, AHalfReadyGroupBeforeAJoinIsForgotten) {
  DistributedOptimizer optimizer(layers_, {.num_groups = 1});
  if (me_ == last_) optimizer.ready("layer1");
  (void)join();
  layers_.fill(me_ + 1.0);
  for (const char* name : {"layer0", "layer1", "layer2"}) optimizer.ready(name);
  optimizer.step();
  for (const auto& gradient : layers_.values) EXPECT_THAT(gradient, Each(mean_));
}

// A gradient refused because of a pending join was not submitted, so the join interrupts no step.
TEST_F(OptimizerSteps, ARefusedGradientBeginsNoStep) {
  DistributedOptimizer optimizer(layers_);
  if (me_ == last_ && n_ > 1) {
    Future<int> joined = join_async();
    EXPECT_THROW(optimizer.ready("layer1"), InvalidArgument);
    wait_for_all();  // the others join when it was refused
    (void)joined.get();
  } else {
    wait_for_all();
    (void)join();
  }
  expect_average(optimizer);
}

TEST_F(OptimizerSteps, ASkippedStepIsDroppedAndTheNextIsReduced) {
  DistributedOptimizer optimizer(layers_);
  for (int step = 0; step < 6; ++step) {
    layers_.fill(me_ + 1.0);
    if (step % 2 == me_ % 2) optimizer.ready("layer0");
    // Without `synchronize`, `skip_step` waits for the ranks that have begun.
    if (step % 3 != 0) optimizer.synchronize();
    const double weight = layers_.weight;
    optimizer.skip_step();
    EXPECT_EQ(layers_.weight, weight);
    expect_average(optimizer);
    EXPECT_EQ(layers_.weight, weight + mean_);
  }
}

TEST_F(OptimizerSteps, ARankThatSkipsAloneIsAMismatch) {
  for (const bool synchronizes : {false, true}) {
    DistributedOptimizer optimizer(layers_);
    layers_.fill(1.0);
    if (synchronizes) optimizer.synchronize();
    me_ == last_ ? optimizer.skip_step() : optimizer.step();
    if (n_ > 1) {
      EXPECT_THROW(optimizer.step(), Mismatch);
    }
    (void)join();
    expect_average(optimizer);
  }
}

TEST_F(OptimizerSteps, ASynchronizedStepMustEndBeforeTheNextBegins) {
  DistributedOptimizer optimizer(layers_, {.backward_passes_per_step = 2});
  layers_.fill(1.0);
  optimizer.synchronize();
  const std::string advice = "skip_step()";
  EXPECT_THAT(thrown_by<InvalidArgument>([&] { optimizer.synchronize(); }).what(),
              HasSubstr(advice));
  EXPECT_THAT(thrown_by<InvalidArgument>([&] { optimizer.end_pass(); }).what(), HasSubstr(advice));
  const auto error = thrown_by<InvalidArgument>([&] { optimizer.ready("layer1"); });
  EXPECT_THAT(error.what(), HasSubstr("ready('layer1')"));
  optimizer.skip_step();
  optimizer.end_pass();
  layers_.fill(me_ + 1.0);
  optimizer.ready("layer1");
  optimizer.synchronize();
  for (const auto& gradient : layers_.values) EXPECT_THAT(gradient, Each(mean_));
}

TEST_F(OptimizerSteps, ListTheirGradientsOnceForReady) {
  Layers many(50);
  DistributedOptimizer optimizer(many, {.backward_passes_per_step = 2});
  for (int step = 0; step < 3; ++step) {
    const int before = many.listed;
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t i = 0; i < many.values.size(); ++i) optimizer.ready(Layers::name(i));
      if (pass == 0) optimizer.end_pass();
    }
    optimizer.step();
    EXPECT_LE(many.listed - before, 2);  // for `ready` and for `step`
  }
}

TEST_F(OptimizerSteps, AStepWithAGradientThatMovedCanBeSkipped) {
  DistributedOptimizer optimizer(layers_);
  std::vector<double> elsewhere(layers_.values[1].size());
  if (me_ == last_) {
    optimizer.ready("layer1");
    layers_.values[1].swap(elsewhere);
    EXPECT_THROW(optimizer.step(), InvalidArgument);
  }
  optimizer.skip_step();
  expect_average(optimizer);
}

TEST_F(OptimizerSteps, AGradientThatMovesAfterReadyIsRefused) {
  DistributedOptimizer optimizer(layers_);
  layers_.fill(me_ + 1.0);
  optimizer.ready("layer1");
  std::vector<double> elsewhere(layers_.values[1].size(), me_ + 1.0);
  layers_.values[1].swap(elsewhere);
  const auto error = thrown_by<InvalidArgument>([&] { optimizer.step(); });
  EXPECT_EQ(error.tensor(), "layer1");
  EXPECT_THAT(error.what(), HasSubstr("has moved"));
  layers_.values[1].swap(elsewhere);
  optimizer.step();
  for (const auto& gradient : layers_.values) EXPECT_THAT(gradient, Each(mean_));
  // Between steps they may move.
  elsewhere = std::vector<double>(layers_.values[1].size());
  layers_.values[1].swap(elsewhere);
  expect_average(optimizer);
}

TEST_F(OptimizerSteps, ANameThatIsTooLongForItsOperationIsRefusedAtOnce) {
  const std::string name(std::size_t{64} << 10, 'x');
  double gradient = me_ + 1.0;
  const auto construct = [&](const std::string& given) {
    return detail::NamedGradientReducer({{given, gradient}}, {}, nullptr);
  };
  const auto error = thrown_by<InvalidArgument>([&] { (void)construct(name); });
  EXPECT_EQ(error.tensor(), name);
  EXPECT_THAT(error.what(), HasSubstr("65536 bytes"));
  const std::string longest = name.substr(64);
  detail::NamedGradientReducer reducer = construct(longest);
  reducer.synchronize({{longest, gradient}});
  EXPECT_EQ(gradient, mean_);
}

TEST_F(OptimizerSteps, GradientsThatShareMemoryAreRefused) {
  std::vector<double> tied(6, me_ + 1.0);
  const std::span all(tied);
  const auto refuse = [](const std::function<void()>& call) {
    const auto error = thrown_by<InvalidArgument>(call);
    EXPECT_EQ(error.tensor(), "b");
    EXPECT_THAT(error.what(), HasSubstr("'a' and 'b' share memory"));
  };
  refuse([&] { (void)detail::NamedGradientReducer({{"a", tied}, {"b", tied}}, {}, nullptr); });
  refuse([&] {
    (void)detail::NamedGradientReducer({{"a", all.last(3)}, {"b", all.first(4)}}, {.num_groups = 1},
                                       nullptr);
  });
  // Parts of one array are no overlap.
  detail::NamedGradientReducer reducer({{"a", all.last(3)}, {"b", all.first(3)}}, {}, nullptr);
  refuse([&] { reducer.synchronize({{"a", all.last(3)}, {"b", all.subspan(3)}}); });
  reducer.synchronize({{"a", all.last(3)}, {"b", all.first(3)}});
  EXPECT_THAT(tied, Each(mean_));
}

TEST_F(OptimizerSteps, AGradientMayBeNamedAsAGroup) {
  std::vector<double> values(3, me_ + 1.0);
  const std::vector<NamedTensor> gradients{
      {"(group 0)", values[0]}, {"b", values[1]}, {"c", values[2]}};
  detail::NamedGradientReducer reducer(gradients, {.groups = {{"b", "c"}}}, nullptr);
  reducer.synchronize(gradients);
  EXPECT_THAT(values, Each(mean_));
}

#ifdef KOLO_TEST_MPI
// Each half of the ranks has a session of its own, in which the ranks of one half join.
TEST(OptimizerSessions, NumberTheStepsAnew) {
  Layers layers;
  std::optional<DistributedOptimizer<Layers>> optimizer;
  {
    const Session session;
    optimizer.emplace(layers);
    optimizer->step();
  }
  int me = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, me % 2, me, &half);
  init(half);
  if (me % 2 == 0) (void)join();
  shutdown();
  MPI_Comm_free(&half);
  const Session session;
  layers.fill(me + 1.0);
  optimizer->step();
  for (const auto& gradient : layers.values) EXPECT_THAT(gradient, Each((size() + 1) / 2.0));
}
#endif

}  // namespace
}  // namespace kolo::internal
