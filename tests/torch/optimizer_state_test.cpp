// SPDX-License-Identifier: Apache-2.0
// The state of LibTorch's optimizers, saved and loaded.
#include "adam_training.hpp"
#include "support.hpp"

#include <algorithm>
#include <string>
#include <typeinfo>

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using testing::HasSubstr;

class OptimizerStateTest : public TorchTest {};

template <typename Optimizer, typename Options>
void expect_resumed(const Options& options, bool named = true) {
  SCOPED_TRACE(typeid(Optimizer).name());
  const auto train = [](nn::Linear& model, Optimizer& optimizer) {
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const auto loss = [&] {
        optimizer.zero_grad();
        const ::torch::Tensor result = model->forward(::torch::ones({2, 3})).square().sum();
        result.backward();
        return result;
      };
      optimizer.step(loss);
    }
  };
  nn::Linear whole(3, 2), resumed(3, 2);
  Optimizer first(whole->parameters(), options);
  train(whole, first);
  const StateDict model = state(*whole), saved = state(first);
  EXPECT_EQ(saved.metadata.contains("class"), named);
  train(whole, first);

  Optimizer second(resumed->parameters(), Options(77.0));
  train(resumed, second);
  load_state(*resumed, model);
  load_state(second, saved);
  if (named) {
    EXPECT_EQ(state(second), saved);
  }
  train(resumed, second);
  expect_same_bits(whole->parameters(), resumed->parameters());
}

// An optimizer with state of its own, of which Adam knows nothing.
struct OwnAdam : optim::Adam {
  using optim::Adam::Adam;
};

TEST_F(OptimizerStateTest, EveryOptimizerComesBack) {
  expect_resumed<optim::SGD>(optim::SGDOptions(0.01));
  expect_resumed<optim::SGD>(optim::SGDOptions(0.01).momentum(0.9).nesterov(true));
  expect_resumed<optim::Adam>(optim::AdamOptions(0.01).amsgrad(true).betas({0.5, 0.75}));
  expect_resumed<optim::AdamW>(optim::AdamWOptions(0.01).weight_decay(0.25));
  expect_resumed<optim::RMSprop>(optim::RMSpropOptions(0.01).centered(true).momentum(0.5));
  expect_resumed<optim::Adagrad>(optim::AdagradOptions(0.01).lr_decay(0.5));
  expect_resumed<OwnAdam>(optim::AdamOptions(0.01), false);
}

TEST_F(OptimizerStateTest, AnotherOptimizersStateIsRefusedAndChangesNothing) {
  ::torch::manual_seed(1);
  AdamTraining training;
  training.steps(2);
  const StateDict before = state(training.optimizer);
  const auto refused = [&](const ::torch::optim::Optimizer& other, const std::string& why) {
    const auto error =
        error_of<InvalidArgument>([&] { load_state(training.optimizer, state(other)); });
    EXPECT_THAT(error.what(), HasSubstr("cannot be loaded as this optimizer's"));
    EXPECT_THAT(error.what(), HasSubstr(why));
    EXPECT_EQ(state(training.optimizer), before);
  };
  nn::Linear small(1, 1);
  refused(optim::SGD(training.model->parameters(), 0.1), "of the class 'SGD', not of Adam");
  refused(optim::Adam(small->parameters()), "group 0 has 2 parameters in it and 6 here");
  std::vector<::torch::Tensor> reversed = training.model->parameters();
  std::reverse(reversed.begin(), reversed.end());
  optim::Adam other(reversed, optim::AdamOptions(0.5));
  other.step();
  refused(other, "'state.0.exp_avg' is f32 [1], its parameter f32 [8, 4]");
}

TEST_F(OptimizerStateTest, StateThatLacksATensorIsRefused) {
  ::torch::manual_seed(1);
  AdamTraining training;
  training.steps(1);
  const StateDict before = state(training.optimizer);
  StateDict changed = before;
  EXPECT_EQ(changed.tensors.erase("state.1.exp_avg_sq"), 1);
  const auto error = error_of<InvalidArgument>([&] { load_state(training.optimizer, changed); });
  EXPECT_THAT(error.what(), HasSubstr("it lacks 'state.1.exp_avg_sq'"));
  EXPECT_EQ(state(training.optimizer), before);
}

TEST_F(OptimizerStateTest, LbfgsCanBeSavedOnceLibTorchCanOrSaysWhy) {
  ::torch::Tensor weight = ::torch::ones({2}, ::torch::requires_grad());
  optim::LBFGS optimizer({weight}, optim::LBFGSOptions(0.1).max_iter(1).history_size(3));
  for (int step = 0; step < 6; ++step) {
    optimizer.step([&] {
      optimizer.zero_grad();
      ::torch::Tensor loss = (weight * weight * ::torch::arange(1, 3)).sum();
      loss.backward();
      return loss;
    });
    try {
      optim::LBFGS loaded({weight}, optim::LBFGSOptions(0.1).max_iter(1).history_size(3));
      load_state(loaded, state(optimizer));
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("LibTorch cannot save the state of this optimizer now"));
      EXPECT_LT(step, 4);
    }
  }
}

}  // namespace
}  // namespace kolo::internal::testing_support
