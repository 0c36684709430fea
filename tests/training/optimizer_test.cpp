// SPDX-License-Identifier: Apache-2.0
// kolo::DistributedOptimizer for a custom optimizer.
#include "kolo/optimizer.hpp"

#include <limits>

#include "../session/fixture.hpp"

namespace kolo::internal {
namespace {

using testing::Each;
using testing::HasSubstr;

/// Gradients of several lengths and dtypes, and a step that only counts.
class Model {
 public:
  explicit Model(int layers = 3) {
    for (int i = 0; i < layers; ++i)
      layers_.push_back(
          {"layer" + std::to_string(i), std::vector<float>(static_cast<std::size_t>(10 * i + 1))});
  }

  std::vector<NamedTensor> gradients() {
    std::vector<NamedTensor> tensors;
    for (auto& [name, gradient] : layers_) tensors.push_back({name, gradient});
    if (has_bias) tensors.push_back({"bias", bias});
    return tensors;
  }
  void step() { ++steps; }

  void fill(double value) {
    for (auto& [name, gradient] : layers_)
      gradient.assign(gradient.size(), static_cast<float>(value));
    bias.assign(bias.size(), value);
  }
  void add(double value) {
    for (auto& [name, gradient] : layers_)
      for (float& element : gradient) element += static_cast<float>(value);
    for (double& element : bias) element += value;
  }
  [[nodiscard]] std::vector<double> values() const {
    std::vector<double> all(bias);
    for (const auto& [name, gradient] : layers_)
      all.insert(all.end(), gradient.begin(), gradient.end());
    return all;
  }
  std::vector<float>& layer(std::size_t i) { return layers_[i].second; }
  std::string& name(std::size_t i) { return layers_[i].first; }

  int steps = 0;
  bool has_bias = true;
  std::vector<double> bias = std::vector<double>(5);

 private:
  std::vector<std::pair<std::string, std::vector<float>>> layers_;
};

class OwnOptimizer : public WithSession {
 protected:
  /// One step with gradients of this rank's number and one more.
  void step(DistributedOptimizer<Model>& optimizer) {
    model_.fill(me_ + 1.0);
    optimizer.step();
  }

  const double mean_ = (n_ + 1) / 2.0;
  Model model_;
};

TEST_F(OwnOptimizer, AveragesGradientsBeforeEachStep) {
  DistributedOptimizer optimizer(model_);
  for (int i = 1; i <= 4; ++i) {
    step(optimizer);
    EXPECT_THAT(model_.values(), Each(mean_));
    EXPECT_EQ(model_.steps, i);
  }
}

TEST_F(OwnOptimizer, SumsAndTakesAdasum) {
  DistributedOptimizer sum(model_, {.op = ReduceOp::sum});
  step(sum);
  EXPECT_THAT(model_.values(), Each(rank_sum_ + n_));
  DistributedOptimizer adasum(model_, {.op = ReduceOp::adasum});
  model_.fill(2.0);
  adasum.step();
  EXPECT_THAT(model_.values(), Each(testing::DoubleNear(2.0, 1e-6)));
}

TEST_F(OwnOptimizer, GradientsMayBecomeReadyInAnyOrder) {
  DistributedOptimizer optimizer(model_);
  for (int round = 0; round < 5; ++round) {
    model_.fill(me_ + 1.0);
    for (int k = 0; k < 2; ++k)  // step() reduces "bias" and another one
      optimizer.ready("layer" + std::to_string((k + me_ + round) % 3));
    optimizer.step();
    EXPECT_THAT(model_.values(), Each(mean_));
  }
}

TEST_F(OwnOptimizer, ReadyRefusesAnUnknownNameAndTheSecondTime) {
  DistributedOptimizer optimizer(model_);
  EXPECT_EQ(thrown_by<InvalidArgument>([&] { optimizer.ready("unknown"); }).tensor(), "unknown");
  model_.fill(me_ + 1.0);
  optimizer.ready("layer1");
  const auto error = thrown_by<InvalidArgument>([&] { optimizer.ready("layer1"); });
  EXPECT_EQ(error.tensor(), "layer1");
  optimizer.synchronize();
  EXPECT_THROW(optimizer.ready("layer2"), InvalidArgument);
  optimizer.step();
  EXPECT_THAT(model_.values(), Each(mean_));
  optimizer.ready("layer1");  // begins the next step
  step(optimizer);
}

TEST_F(OwnOptimizer, SynchronizeLetsGradientsBeChangedBeforeTheStep) {
  DistributedOptimizer optimizer(model_);
  model_.fill(me_ + 1.0);
  optimizer.synchronize();
  EXPECT_THAT(model_.values(), Each(mean_));
  EXPECT_EQ(model_.steps, 0);
  model_.fill(0.25);  // clipped
  optimizer.step();
  EXPECT_THAT(model_.values(), Each(0.25));
  EXPECT_EQ(model_.steps, 1);
}

TEST_F(OwnOptimizer, GroupsAreReducedTogether) {
  DistributedOptimizer listed(model_, {.groups = {{"layer2", "bias"}, {"layer0"}}});
  for (int round = 0; round < 3; ++round) {
    model_.fill(me_ + 1.0);
    listed.ready(me_ % 2 == 0 ? "bias" : "layer2");
    listed.ready(me_ % 2 == 0 ? "layer2" : "bias");
    listed.step();
    EXPECT_THAT(model_.values(), Each(mean_));
  }
  for (const int groups : {1, 2, 3, 4, 100}) {
    DistributedOptimizer counted(model_, {.num_groups = groups});
    step(counted);
    EXPECT_THAT(model_.values(), Each(mean_)) << groups;
  }
}

TEST_F(OwnOptimizer, SeveralPassesMakeASumOrAMean) {
  for (const Accumulation accumulation : {Accumulation::sum, Accumulation::mean}) {
    DistributedOptimizer optimizer(model_,
                                   {.backward_passes_per_step = 4, .accumulation = accumulation});
    for (int round = 0; round < 3; ++round) {
      model_.fill(0.0);
      for (int pass = 0; pass < 4; ++pass) {
        model_.add(me_ + 1.0);
        optimizer.ready("layer1");
        if (pass < 3) optimizer.end_pass();
      }
      EXPECT_THROW(optimizer.end_pass(), InvalidArgument);
      optimizer.step();
      EXPECT_THAT(model_.values(), Each(accumulation == Accumulation::sum ? 4 * mean_ : mean_));
    }
  }
}

TEST_F(OwnOptimizer, AStepMayEndAfterFewerPasses) {
  for (const Accumulation accumulation : {Accumulation::sum, Accumulation::mean}) {
    DistributedOptimizer optimizer(model_,
                                   {.backward_passes_per_step = 4, .accumulation = accumulation});
    for (const int passes : {2, 4, 1, 3}) {
      model_.fill(0.0);
      for (int pass = 1; pass <= passes; ++pass) {
        model_.add(me_ + 1.0);
        if (pass < passes) optimizer.end_pass();
      }
      optimizer.step();
      const double expected = accumulation == Accumulation::sum ? passes * mean_ : mean_;
      EXPECT_THAT(model_.values(), Each(testing::DoubleNear(expected, 1e-6))) << passes;
    }
  }
}

TEST_F(OwnOptimizer, PredividesAndCompresses) {
  DistributedOptimizer divided(model_, {.gradient_predivide_factor = 4.0});
  step(divided);
  EXPECT_THAT(model_.values(), Each(mean_));
  // Four times as much would not fit fp16.
  DistributedOptimizer compressed(
      model_, {.compression = Compression::fp16, .gradient_predivide_factor = 4.0});
  model_.fill(32768.0);
  compressed.step();
  EXPECT_THAT(model_.values(), Each(32768.0));
  model_.fill(1.0 + 1.0 / 4096);
  compressed.step();
  EXPECT_THAT(model_.values(), Each(1.0));
}

TEST_F(OwnOptimizer, OfASetReducesAmongItsMembersAndOnlyStepsElsewhere) {
  const ProcessSet set = add_process_set({0});
  DistributedOptimizer optimizer(model_, {.op = ReduceOp::sum, .process_set = set});
  step(optimizer);
  optimizer.ready("layer0");
  step(optimizer);
  EXPECT_THAT(model_.values(), Each(me_ + 1.0));
  EXPECT_EQ(model_.steps, 2);
}

TEST_F(OwnOptimizer, OutsideItsSetStepsWithTheMeanOfItsOwnPasses) {
  const ProcessSet set = add_process_set({0});
  for (const Accumulation accumulation : {Accumulation::sum, Accumulation::mean}) {
    DistributedOptimizer optimizer(
        model_, {.backward_passes_per_step = 2, .accumulation = accumulation, .process_set = set});
    for (const bool is_complete : {true, false}) {
      model_.fill(me_ + 1.0);
      if (is_complete) {
        optimizer.end_pass();
        model_.fill(2 * (me_ + 1.0));
      }
      optimizer.step();
      const bool divides = is_complete && accumulation == Accumulation::mean;
      EXPECT_THAT(model_.values(), Each((me_ + 1.0) * (is_complete ? 2 : 1) / (divides ? 2 : 1)));
    }
  }
  if (me_ == 0) return;
  struct OnGpu {
    std::vector<NamedTensor> gradients() {
      return {{"a", {&memory, Shape{1}, DType::f32, Device{DeviceType::cuda, 0}}}};
    }
    void step() {}
    float memory = 0.0F;
  } on_gpu;
  const auto refused = thrown_by<InvalidArgument>([&] {
    DistributedOptimizer(
        on_gpu,
        {.backward_passes_per_step = 2, .accumulation = Accumulation::mean, .process_set = set});
  });
  EXPECT_THAT(refused.what(), HasSubstr("'a' is in GPU memory, and this rank is not in the"));
}

TEST_F(OwnOptimizer, TwoOfThemWithTheSameNamesGoSideBySide) {
  Model other;
  DistributedOptimizer first(model_);
  DistributedOptimizer second(other, {.op = ReduceOp::sum});
  for (int round = 0; round < 3; ++round) {
    model_.fill(me_ + 1.0);
    other.fill(me_ + 1.0);
    for (int k = 0; k < 2; ++k) (k + me_) % 2 == 0 ? first.ready("layer0") : second.ready("layer0");
    first.step();
    second.step();
    EXPECT_THAT(model_.values(), Each(mean_));
    EXPECT_THAT(other.values(), Each(rank_sum_ + n_));
  }
}

TEST_F(OwnOptimizer, MayMove) {
  DistributedOptimizer optimizer(model_);
  model_.fill(me_ + 1.0);
  optimizer.ready("layer0");
  DistributedOptimizer moved(std::move(optimizer));
  moved.step();
  EXPECT_THAT(model_.values(), Each(mean_));
}

TEST_F(OwnOptimizer, OptionsThatCannotBeUsedAreRefused) {
  const auto refuse = [&](const DistributedOptimizerOptions& options, const std::string& why) {
    EXPECT_THAT(thrown_by<InvalidArgument>([&] { DistributedOptimizer(model_, options); }).what(),
                HasSubstr(why));
  };
  refuse({.op = ReduceOp::max}, "op is max");
  refuse({.backward_passes_per_step = 0}, "backward_passes_per_step is 0");
  refuse({.gradient_predivide_factor = 0.0}, "gradient_predivide_factor is 0");
  refuse({.gradient_predivide_factor = -1.0}, "gradient_predivide_factor is -1");
  refuse({.gradient_predivide_factor = std::numeric_limits<double>::infinity()},
         "gradient_predivide_factor is inf");
  refuse({.gradient_predivide_factor = 1e-310}, "gradient_predivide_factor is 1e-310");
  refuse({.backward_passes_per_step = 100,
          .accumulation = Accumulation::mean,
          .gradient_predivide_factor = 1e307},
         "gradient_predivide_factor is 1e+307");
  refuse({.op = ReduceOp::sum, .gradient_predivide_factor = 2.0}, "gradient_predivide_factor");
  refuse({.num_groups = -1}, "num_groups is -1");
  refuse({.groups = {{"bias"}}, .num_groups = 2}, "num_groups is 2");
  expect_usable();
}

TEST_F(OwnOptimizer, WrongNamesAndGroupsAreRefusedOnThatRankAlone) {
  const auto group = [&](std::vector<std::vector<std::string>> groups, const std::string& why) {
    if (me_ != last_) return;
    EXPECT_THAT(thrown_by<InvalidArgument>([&] {
                  DistributedOptimizer(model_, {.groups = groups});
                }).what(),
                HasSubstr(why));
  };
  group({{"unknown"}}, "unknown");
  group({{"bias"}, {"layer0", "bias"}}, "twice");
  group({{}}, "no names");
  if (me_ == last_) {
    model_.name(1) = "layer0";
    EXPECT_EQ(thrown_by<InvalidArgument>([&] { DistributedOptimizer{model_}; }).tensor(), "layer0");
    model_.name(1) = "";
    EXPECT_THROW(DistributedOptimizer{model_}, InvalidArgument);
  }
  expect_usable();
}

TEST_F(OwnOptimizer, ModelsThatDifferAreAMismatchOnAllThatNamesTheGradient) {
  if (n_ == 1) GTEST_SKIP() << "one rank cannot disagree";
  const auto differ = [&](Model& model, const DistributedOptimizerOptions& options,
                          const std::string& name) {
    const auto error = thrown_by<Mismatch>([&] { DistributedOptimizer(model, options); });
    EXPECT_EQ(error.tensor(), name);
    EXPECT_EQ(error.ranks(), std::vector{last_});
    expect_usable();
  };
  const bool odd = me_ == last_;
  Model shape;
  if (odd) shape.layer(1).resize(12);
  differ(shape, {}, "layer1");
  Model name;
  if (odd) name.name(1) = "layer one";
  differ(name, {}, "layer1");
  Model missing;
  missing.has_bias = !odd;
  differ(missing, {}, "bias");
  Model same;
  differ(same, {.op = odd ? ReduceOp::sum : ReduceOp::average}, "(options)");
  differ(same, {.backward_passes_per_step = odd ? 2 : 1}, "(options)");
  differ(same, {.num_groups = odd ? 1 : 2}, "layer2");
  DistributedOptimizer optimizer(model_);
  step(optimizer);
  EXPECT_THAT(model_.values(), Each(mean_));
}

TEST_F(OwnOptimizer, AShapeThatChangesOnOneRankEndsTheStepOnAllAlike) {
  if (n_ == 1) GTEST_SKIP() << "one rank cannot disagree";
  DistributedOptimizer optimizer(model_);
  step(optimizer);
  if (me_ == last_) model_.layer(1).resize(12);
  model_.fill(me_ + 1.0);
  EXPECT_THROW(optimizer.step(), Mismatch);
  EXPECT_EQ(model_.steps, 1);
  model_.layer(1).resize(11);
  step(optimizer);
  EXPECT_THAT(model_.values(), Each(mean_));
  EXPECT_EQ(model_.steps, 2);
}

TEST_F(OwnOptimizer, OtherGradientsThanAtFirstAreRefusedOnThatRankAlone) {
  DistributedOptimizer optimizer(model_);
  step(optimizer);
  if (me_ == last_) {
    model_.has_bias = false;
    EXPECT_THROW(optimizer.step(), InvalidArgument);
    model_.has_bias = true;
  }
  step(optimizer);
  EXPECT_THAT(model_.values(), Each(mean_));
}

TEST_F(OwnOptimizer, TrainsTheSameModelOnAllRanks) {
  // Fits w to a target of which every rank sees one part: the mean of the parts.
  struct Linear {
    std::vector<double> w = std::vector<double>(4, 0.0);
    std::vector<double> gradient = std::vector<double>(4);
    std::vector<NamedTensor> gradients() { return {{"w", gradient}}; }
    void step() {
      for (std::size_t i = 0; i < w.size(); ++i) w[i] -= 0.5 * gradient[i];
    }
  } model;
  broadcast_parameters({{"w", model.w}}, 0);
  DistributedOptimizer optimizer(model);
  for (int i = 0; i < 60; ++i) {
    for (std::size_t k = 0; k < 4; ++k) model.gradient[k] = model.w[k] - (me_ + 1.0);
    optimizer.step();
  }
  EXPECT_THAT(model.w, Each(testing::DoubleNear(mean_, 1e-9)));
  std::vector<double> first = model.w;
  broadcast(first, 0);
  EXPECT_EQ(first, model.w);
}

}  // namespace
}  // namespace kolo::internal
