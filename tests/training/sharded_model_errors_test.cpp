// SPDX-License-Identifier: Apache-2.0
// kolo::ShardedModel: ranks on which forward or backward throws, and misuse.
#include <cstddef>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "../session/fixture.hpp"
#include "sharded_model_trainer.hpp"

namespace kolo::internal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ShardedModelErrors : public WithSession {
 protected:
  ShardedModel model_{Chain::units(), Chain::fill};
  ShardedModel other_{Chain::units(), Chain::fill};
  Pass pass_{batch_of(0, me_)};

  /// Fails unless the model trains on as one that has had no error.
  void expect_usable() {
    for (ShardedModel* each : {&model_, &other_}) {
      each->zero_gradients();
      forward(*each, pass_);
      backward(*each, pass_);
    }
    EXPECT_EQ(whole_of(model_.gradients()), whole_of(other_.gradients()));
  }
  template <typename Function>
  static void expect_invalid(const std::string& message, const Function& function) {
    EXPECT_THAT(thrown_by<InvalidArgument>(function).what(), HasSubstr(message));
  }
};

TEST_F(ShardedModelErrors, AThrowInBackwardOfOneRankFailsThePassOfAll) {
  for (int step = 0; step < 3; ++step) {
    forward(model_, pass_);
    const auto run = [&] {
      auto guard = model_.begin_backward();
      for (std::size_t i = Chain::layers; i > 0; --i) {
        const auto layer = guard.use(i);
        if (me_ == last_ && i == 2) throw std::domain_error("no gradient today");
      }
      guard.end();
    };
    if (me_ == last_) {
      EXPECT_THROW(run(), std::domain_error);
    } else {
      EXPECT_THAT(thrown_by<BackwardFailed>(run).ranks(), ElementsAre(last_));
    }
    expect_usable();
  }
}

TEST_F(ShardedModelErrors, AThrowInForwardOfOneRankFailsThePassOfAll) {
  for (int step = 0; step < 3; ++step) {
    const auto run = [&] {
      auto guard = model_.begin_forward();
      for (std::size_t i = 1; i <= Chain::layers; ++i) {
        const auto layer = guard.use(i);
        if (me_ == 0 && i == 2) throw std::domain_error("no result today");
      }
      guard.end();
    };
    if (me_ == 0) {
      EXPECT_THROW(run(), std::domain_error);
      expect_invalid("without a forward", [&] { (void)model_.begin_backward(); });
    } else {
      run();
      const auto go_back = [&] {
        auto guard = model_.begin_backward();
        for (std::size_t i = Chain::layers; i > 0; --i) (void)guard.use(i);
        guard.end();
      };
      EXPECT_THAT(thrown_by<BackwardFailed>(go_back).ranks(), ElementsAre(0));
    }
    expect_usable();
  }
}

TEST_F(ShardedModelErrors, AStepBetweenForwardAndBackwardIsRefused) {
  forward(model_, pass_);
  for (const auto& [name, tensor] : model_.parameters())
    for (std::int64_t k = 0; k < tensor.elements(); ++k) static_cast<float*>(tensor.data())[k] += 1;
  const auto error = thrown_by<Error>([&] { backward(model_, pass_); });
  EXPECT_THAT(error.what(), HasSubstr("'root' were changed between forward and backward"));
  expect_invalid("without a forward", [&] { (void)model_.begin_backward(); });
}

TEST_F(ShardedModelErrors, MisuseNamesTheUnit) {
  expect_invalid("without a forward", [&] { (void)model_.begin_backward(); });
  auto ahead = model_.begin_forward();
  expect_invalid("begin_forward() inside of forward", [&] { (void)model_.begin_forward(); });
  expect_invalid("gather() inside of forward", [&] { (void)model_.gather(); });
  expect_invalid("take_part() inside of forward", [&] { model_.take_part(); });
  expect_invalid("there is no unit 5; there are 5", [&] { (void)ahead.use(5); });
  expect_invalid("'root' is the root unit", [&] { (void)ahead.use(0); });
  {
    const auto layer = ahead.use(1);
    expect_invalid("parameter 'w' of unit 'layer.0' is f32, not f64",
                   [&] { (void)layer.parameter<double>(0); });
    expect_invalid("unit 'layer.0' has no parameter 2", [&] { (void)layer.parameter<float>(2); });
    expect_invalid("unit 'layer.0' has no gradient 0", [&] { (void)layer.gradient<float>(0); });
    expect_invalid("end() while 'layer.0' is in use", [&] { ahead.end(); });
  }
  ahead.end();
  expect_invalid("has ended already", [&] { ahead.end(); });
  expect_invalid("use('layer.0') after the end", [&] { (void)ahead.use(1); });
  auto back = model_.begin_backward();
  expect_invalid("zero_gradients() inside of backward", [&] { model_.zero_gradients(); });
  {
    const auto layer = back.use(4);
    expect_invalid("'layer.3' is in use already", [&] { (void)back.use(4); });
    expect_invalid("end() while 'layer.3' is in use", [&] { back.end(); });
  }
  back.end();
  {
    const auto whole = model_.gather();
    expect_invalid("guard of gather() lives", [&] { (void)model_.begin_forward(); });
  }
  expect_usable();
}

TEST_F(ShardedModelErrors, InvalidUnitsAreRefused) {
  using Units = std::vector<ShardedModel::Unit>;
  const auto make = [](const Units& units, const ShardedModelOptions& options = {}) {
    return [units, options] { const ShardedModel model(units, {}, options); };
  };
  expect_invalid("there are no units", make({}));
  expect_invalid("two units 'a'", make({{"a"}, {"a"}}));
  expect_invalid("a unit has no name", make({{""}}));
  expect_invalid("unit 'a' has two parameters 'w'", make({{"a", {{"w", 1}, {"w", 2}}}}));
  expect_invalid("'w' of unit 'a' has 0 elements", make({{"a", {{"w", 0}}}}));
  constexpr std::int64_t many = std::int64_t{1} << 61;
  expect_invalid("'w' of unit 'a' has 2305843009213693952 elements", make({{"a", {{"w", many}}}}));
  expect_invalid("'v' of unit 'a' has 576460752303423488 elements, too many",
                 make({{"a", {{"u", many / 4, DType::f16}, {"v", many / 4, DType::f16}}}}));
  expect_invalid("'w' of unit 'a' is i32", make({{"a", {{"w", 4, DType::i32}}}}));
  expect_invalid("op must be average or sum", make({{"a"}}, {.op = ReduceOp::max}));
  expect_invalid("units_ahead is -1", make({{"a"}}, {.units_ahead = -1}));
}

TEST_F(ShardedModelErrors, DifferingModelsAreRefused) {
  if (n_ == 1) GTEST_SKIP() << "needs several ranks";
  const auto differing_units = [&] {
    const ShardedModel model({{"root", {{"w", me_ == last_ ? 4 : 5}}}});
  };
  EXPECT_THAT(thrown_by<Mismatch>(differing_units).what(), HasSubstr("w"));
  const auto differing_values = [&] {
    const ShardedModel model({{"root", {{"w", 9}}}}, [&](std::size_t, auto parameters) {
      static_cast<float*>(parameters[0].data())[8] = me_ == last_ ? 1 : 2;
    });
  };
  const auto error = thrown_by<Mismatch>(differing_values);
  EXPECT_THAT(error.what(), HasSubstr("initial values differ between the ranks: 'root.w'"));
  EXPECT_THAT(error.ranks(), ElementsAre(last_));
  const auto throwing = [&] {
    const ShardedModel model({{"root", {{"w", 9}}}}, [&](std::size_t, auto) {
      if (me_ == last_) throw std::runtime_error("no such file");
    });
  };
  EXPECT_THAT(thrown_by<Error>(throwing).what(), HasSubstr("no such file"));
  WithSession::expect_usable();
}

}  // namespace
}  // namespace kolo::internal
