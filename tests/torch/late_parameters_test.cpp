// SPDX-License-Identifier: Apache-2.0
// Parameters that become trainable between two steps, in loops that zero gradients after the step:
// the optimizer does not learn of them before backward accumulates their gradients.
#include "../support/halves_hook.hpp"
#include "support.hpp"

#include <algorithm>

namespace kolo::internal::testing_support {
namespace {

namespace optim = ::torch::optim;

class LateParametersTest : public TorchTest {
 protected:
  // A rank without a pass contributes zeros.
  template <typename Optimizer>
  void step(Optimizer& optimizer, const std::vector<::torch::Tensor>& used, bool has_pass = true) {
    if (has_pass) {
      ::torch::Tensor loss = ::torch::zeros({}, f64);
      for (const ::torch::Tensor& tensor : used) loss = loss + (tensor * (rank() + 1)).sum();
      loss.backward();
    }
    optimizer.step();
    optimizer.zero_grad();
  }

  ::torch::Tensor head_ = parameter({1.0, 1.0});
  ::torch::Tensor body_ = parameter({1.0, 1.0, 1.0});
};

template <typename MakeOptimizer>
void expect_unfrozen_is_reduced(MakeOptimizer make_optimizer, const ::torch::Tensor& head,
                                ::torch::Tensor body, auto step) {
  body.set_requires_grad(false);
  auto optimizer = make_optimizer();
  step(optimizer);
  body.set_requires_grad(true);
  step(optimizer);
  step(optimizer);
  expect_close(head, ::torch::full({2}, 1.0 - 3 * mean_rank(), f64));
  expect_close(body, ::torch::full({3}, 1.0 - 2 * mean_rank(), f64));
}

TEST_F(LateParametersTest, AnUnfrozenOneIsReducedInItsFirstPass) {
  expect_unfrozen_is_reduced(
      [&] {
        return DistributedOptimizer(optim::SGD({body_, head_}, 1.0),
                                    {{"body", body_}, {"head", head_}});
      },
      head_, body_,
      [&](auto& optimizer) {
        step(optimizer, {head_, body_});
      });
}

TEST_F(LateParametersTest, SoIsOneOfAShardedOptimizer) {
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    head_ = parameter({1.0, 1.0});
    body_ = parameter({1.0, 1.0, 1.0});
    expect_unfrozen_is_reduced(
        [&] {
          return ShardedOptimizer(optim::SGD({body_, head_}, 1.0),
                                  {{"body", body_}, {"head", head_}}, {}, sharding);
        },
        head_, body_,
        [&](auto& optimizer) {
          step(optimizer, {head_, body_});
        });
  }
}

TEST_F(LateParametersTest, SoIsOneOfAModule) {
  struct Net : ::torch::nn::Module {
    Net(const ::torch::Tensor& body, const ::torch::Tensor& head) {
      register_parameter("body", body);
      register_parameter("head", head);
    }
  } net(body_, head_);
  optim::SGD plain(net.parameters(), 1.0);
  DistributedGradients gradients = [&] {
    body_.set_requires_grad(false);
    return DistributedGradients(net);
  }();
  step(plain, {head_, body_});
  body_.set_requires_grad(true);
  step(plain, {head_, body_});
  expect_close(head_, values({1.0, 1.0}) - 2 * mean_rank());
  expect_close(body_, values({1.0, 1.0, 1.0}) - mean_rank());
}

TEST_F(LateParametersTest, SomeRanksMayHaveNoPass) {
  if (size() == 1) GTEST_SKIP() << "on several ranks";
  body_.set_requires_grad(false);
  DistributedOptimizer optimizer(optim::SGD({body_, head_}, 1.0),
                                 {{"body", body_}, {"head", head_}});
  step(optimizer, {head_, body_});
  body_.set_requires_grad(true);
  ::torch::Tensor added = parameter({1.0});
  optimizer.add_param_group(optim::OptimizerParamGroup({added}));
  for (int i = 0; i < 2; ++i) step(optimizer, {head_, body_, added}, rank() + 1 < size());
  const double without_last = (size() - 1) / 2.0;
  expect_close(body_, values({1.0, 1.0, 1.0}) - 2 * without_last);
  expect_close(added, values({1.0}) - 2 * without_last);
  expect_close(head_, values({1.0, 1.0}) - 2 * without_last - mean_rank());
}

TEST_F(LateParametersTest, OneWithoutAGradientOnSomeRanksGetsZerosThere) {
  body_.set_requires_grad(false);
  DistributedOptimizer optimizer(optim::SGD({body_, head_}, 1.0),
                                 {{"body", body_}, {"head", head_}});
  step(optimizer, {head_, body_});
  body_.set_requires_grad(true);
  step(optimizer, rank() == 0 ? std::vector{head_, body_} : std::vector{head_});
  expect_close(body_, values({1.0, 1.0, 1.0}) - 1.0 / size());
}

TEST_F(LateParametersTest, OneOfAGroupIsReducedWithIt) {
  body_.set_requires_grad(false);
  DistributedOptimizer optimizer(optim::SGD({body_, head_}, 1.0),
                                 {{"body", body_}, {"head", head_}},
                                 {.groups = {{"body", "head"}}});
  step(optimizer, {head_, body_});
  body_.set_requires_grad(true);
  step(optimizer, {head_, body_});
  expect_close(body_, values({1.0, 1.0, 1.0}) - mean_rank());
  expect_close(head_, values({1.0, 1.0}) - 2 * mean_rank());
}

TEST_F(LateParametersTest, AnUnfrozenOneKeepsWhatPassesWithoutReductionAccumulated) {
  body_.set_requires_grad(false);
  DistributedOptimizer optimizer(optim::SGD({body_, head_}, 1.0),
                                 {{"body", body_}, {"head", head_}},
                                 {.backward_passes_per_step = 2});
  const auto train = [&] {
    backward(head_.sum() + body_.sum(), rank() + 1);
    step(optimizer, {head_, body_});
  };
  train();
  body_.set_requires_grad(true);
  train();
  expect_close(body_, values({1.0, 1.0, 1.0}) - 2 * mean_rank());
  expect_close(head_, values({1.0, 1.0}) - 4 * mean_rank());
}

TEST_F(LateParametersTest, AnAddedOneIsReducedInTheStepThatFindsIt) {
  for (const bool sharded : {false, true}) {
    head_ = parameter({1.0, 1.0});
    ::torch::Tensor added = parameter({1.0, 1.0, 1.0});
    const auto train = [&](auto optimizer) {
      step(optimizer, {head_});
      optimizer.add_param_group(optim::OptimizerParamGroup({added}));
      for (int i = 0; i < 2; ++i) step(optimizer, {head_, added});
    };
    if (sharded)
      train(ShardedOptimizer(optim::SGD({head_}, 1.0), {{"head", head_}}));
    else
      train(DistributedOptimizer(optim::SGD({head_}, 1.0), {{"head", head_}}));
    expect_close(head_, values({1.0, 1.0}) - 3 * mean_rank());
    expect_close(added, values({1.0, 1.0, 1.0}) - 2 * mean_rank());
  }
}

TEST_F(LateParametersTest, AnAddedOneIsDividedByThePassesThatWereMade) {
  for (const int passes : {1, 2, 3, 4, 5}) {
    for (const bool synchronizes : {false, true}) {
      head_ = parameter({1.0, 1.0});
      body_ = parameter({1.0, 1.0, 1.0});
      DistributedOptimizer optimizer(
          optim::SGD({head_}, 1.0),
          {.backward_passes_per_step = 4, .accumulation = Accumulation::mean});
      const auto add = [&] { optimizer.add_param_group(optim::OptimizerParamGroup({body_})); };
      if (!synchronizes) add();
      for (int pass = 0; pass < passes; ++pass) {
        backward(head_, rank() + 1);
        backward(body_, rank() + 1);
      }
      if (synchronizes) optimizer.synchronize();
      if (synchronizes) add();
      optimizer.step();
      const double reached = mean_rank() * std::max(1.0, passes / 4.0);
      expect_close(head_, values({1.0, 1.0}) - reached);
      expect_close(body_, values({1.0, 1.0, 1.0}) - reached);
    }
  }
}

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

// As programs do that change the resolution of a scene. `body_` is the second parameter of its
// group.
template <typename Optimizer>
std::vector<WeakTensor> replace_often(Optimizer& optimizer, ::torch::Tensor& body,
                                      const auto& pass) {
  std::vector<WeakTensor> former;
  for (int i = 0; i < 20; ++i) {
    pass();
    optimizer.step();
    former.emplace_back(body.getIntrusivePtr());
    body = body.detach().clone().set_requires_grad(true);
    optimizer.param_groups()[0].params()[1] = body;  // the old one has a gradient
    optimizer.step();
    optimizer.zero_grad();
  }
  optimizer.step();
  return former;
}

TEST_F(LateParametersTest, ReplacedOnesAreFreedAndReducedNoMore) {
  const auto sgd = [&] {
    head_ = parameter({1.0, 1.0});
    body_ = parameter({1.0, 1.0, 1.0});
    return optim::SGD({head_, body_}, optim::SGDOptions(0.25).momentum(0.5));
  };
  const auto named = [&] { return NamedParameters{{"head", head_}, {"body", body_}}; };
  const auto train = [&](auto& optimizer) {
    const auto former =
        replace_often(optimizer, body_, [&] { backward(head_.sum() + body_.sum(), rank() + 1); });
    for (const WeakTensor& tensor : former) EXPECT_TRUE(tensor.expired());
    return flat({head_, body_});
  };
  optim::SGD plain = sgd();
  std::vector<::torch::Tensor> kept;  // so that no new one gets the state of an old one
  static_cast<void>(replace_often(plain, body_, [&] {
    kept.push_back(body_);
    backward(head_.sum() + body_.sum(), mean_rank());
  }));
  const ::torch::Tensor expected = flat({head_, body_});
  const auto hook = std::make_shared<HalvesHook>();
  {
    optim::SGD wrapped = sgd();
    DistributedOptimizer optimizer(std::move(wrapped), named(), {.hook = hook});
    expect_close(train(optimizer), expected);
  }
  EXPECT_EQ(hook->reduced.count(".body(2)"), 0U);
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    optim::SGD wrapped = sgd();
    ShardedOptimizer optimizer(std::move(wrapped), named(), {}, sharding);
    expect_close(train(optimizer), expected);
    EXPECT_EQ(optimizer.state().size(), 1U) << "former shards have state, besides the head";
  }
}

TEST_F(LateParametersTest, AReplacedOneIsReducedForAsLongAsItIsUsed) {
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    head_ = parameter({1.0, 1.0});
    body_ = parameter({1.0, 1.0, 1.0});
    ShardedOptimizer optimizer(optim::SGD({head_, body_}, 1.0), {{"head", head_}, {"body", body_}},
                               {}, sharding);
    ::torch::Tensor former = body_;
    body_ = parameter({2.0});
    optimizer.param_groups()[0].params()[1] = body_;
    for (int i = 0; i < 2; ++i) step(optimizer, {head_, body_, former});
    expect_close(body_, values({2.0 - 2 * mean_rank()}));
    expect_close(former, values({1.0, 1.0, 1.0}));
    former.mutable_grad().reset();
    optimizer.param_groups()[0].params()[1] = former;
    for (int i = 0; i < 2; ++i) step(optimizer, {head_, former});
    expect_close(former, values({1.0, 1.0, 1.0}) - 2 * mean_rank());
  }
}

// Rank 0 keeps the former parameter, with a gradient.
void expect_that_a_kept_one_takes_no_part(auto& optimizer, ::torch::Tensor& body) {
  backward(body, rank() + 1);
  optimizer.step();
  const ::torch::Tensor former = rank() == 0 ? body : ::torch::Tensor();
  body = parameter({2.0});
  optimizer.param_groups()[0].params()[0] = body;
  for (int i = 0; i < 3; ++i) {
    if (i == 1) backward(body, rank() + 1);
    optimizer.step();
  }
  expect_close(body, values({2.0 - 2 * mean_rank()}));
}

TEST_F(LateParametersTest, AReplacedOneThatOneRankKeepsTakesNoPart) {
  const auto hook = std::make_shared<HalvesHook>();
  DistributedOptimizer optimizer(optim::SGD({body_}, 1.0), {{"body", body_}}, {.hook = hook});
  expect_that_a_kept_one_takes_no_part(optimizer, body_);
  EXPECT_EQ(hook->reduced.count(".body(2)"), 0U);
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    body_ = parameter({1.0, 1.0, 1.0});
    ShardedOptimizer sharded(optim::SGD({body_}, 1.0), {{"body", body_}}, {}, sharding);
    expect_that_a_kept_one_takes_no_part(sharded, body_);
  }
}

TEST_F(LateParametersTest, AConvertedOneIsReducedInItsFirstPass) {
  DistributedOptimizer optimizer(optim::SGD({head_, body_}, 1.0),
                                 {{"head", head_}, {"body", body_}});
  step(optimizer, {head_, body_});
  body_.set_data(body_.detach().to(::torch::kFloat32));
  ((head_ * (rank() + 1)).sum() + (body_ * (rank() + 1)).sum()).backward();
  optimizer.step();
  expect_close(body_.to(f64), values({1.0, 1.0, 1.0}) - 2 * mean_rank());
}

TEST_F(LateParametersTest, AModuleThatIsConvertedAsAWholeIsReducedInItsFirstPass) {
  ::torch::nn::Linear net(::torch::nn::LinearOptions(1, 1).bias(false));
  broadcast_parameters(*net, 0);
  const DistributedGradients gradients(*net);
  optim::SGD plain(net->parameters(), 1.0);
  const auto expect_mean = [&](::torch::Dtype dtype) {
    plain.zero_grad();
    const ::torch::Tensor x = ::torch::full({1, 1}, rank() + 1.0, dtype);
    const std::vector<::torch::Tensor> own =
        ::torch::autograd::grad({net->forward(x).sum()}, {net->weight});
    expect_close(own.front().to(f64), ::torch::full({1, 1}, rank() + 1.0, f64));
    for (int passes = 1; passes < 3; ++passes) {
      net->forward(x).sum().backward();
      expect_close(net->weight.grad().to(f64), ::torch::full({1, 1}, passes * mean_rank(), f64));
    }
  };
  for (const ::torch::Dtype dtype : {f64, ::torch::kFloat32, f64}) {
    net->to(dtype);
    expect_mean(dtype);
  }
}

TEST_F(LateParametersTest, AModuleMayBeConvertedAfterAPassOfItsStep) {
  ::torch::nn::Linear net(::torch::nn::LinearOptions(1, 1).bias(false));
  net->to(f64);
  broadcast_parameters(*net, 0);
  DistributedOptimizer optimizer(optim::SGD(net->parameters(), 1.0));
  const auto pass = [&](::torch::Dtype dtype) {
    net->forward(::torch::full({1, 1}, rank() + 1.0, dtype)).sum().backward();
  };
  pass(f64);
  net->to(::torch::kFloat32);
  net->weight.mutable_grad().reset();
  pass(::torch::kFloat32);
  expect_close(net->weight.grad().to(f64), ::torch::full({1, 1}, mean_rank(), f64));
  optimizer.step();
  expect_same_bits_on_all_ranks(net->parameters());
}

TEST_F(LateParametersTest, OneWhoseOptimizerEndsPassesToTheOther) {
  auto owner = std::make_unique<DistributedOptimizer<optim::SGD>>(optim::SGD({head_}, 1.0));
  DistributedOptimizer<optim::SGD> other(optim::SGD({body_, head_}, 1.0));
  step(other, {head_, body_});
  owner.reset();
  step(other, {head_, body_});
  step(other, {head_, body_}, rank() == 0);
  const double of_first = 1.0 / size();
  expect_close(head_, values({1.0, 1.0}) - 2 * mean_rank() - of_first);
  expect_close(body_, values({1.0, 1.0, 1.0}) - 2 * mean_rank() - of_first);
}

TEST_F(LateParametersTest, AClosureAddsToWhatPassesBeforeItHaveLeft) {
  const auto closure = [&] {
    const at::AutoGradMode on(true);
    ::torch::Tensor loss = (head_ * (rank() + 1)).sum();
    loss.backward();
    return loss;
  };
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    head_ = parameter({1.0, 1.0});
    body_ = parameter({1.0, 1.0, 1.0});
    const auto train = [&](auto optimizer) {
      {
        const NoSync local = optimizer.no_sync();
        backward(body_, rank() + 1);
      }
      optimizer.step(closure);
      expect_close(head_, values({1.0, 1.0}) - mean_rank());
      expect_close(body_, values({1.0, 1.0, 1.0}) - mean_rank());
      optimizer.zero_grad();
      backward(head_, rank() + 1);  // reduced before the closure
      optimizer.step(closure);
      expect_close(head_, values({1.0, 1.0}) - 3 * mean_rank());
    };
    optim::SGD plain({head_, body_}, 1.0);
    if (sharding == Sharding::state)
      train(DistributedOptimizer(std::move(plain)));
    else
      train(ShardedOptimizer(std::move(plain), {{"head", head_}, {"body", body_}}, {}, sharding));
  }
}

TEST_F(LateParametersTest, GradientsOfAModuleMayBeMadeAnew) {
  ::torch::nn::Linear net(::torch::nn::LinearOptions(1, 1).bias(false));
  net->to(f64);
  broadcast_parameters(*net, 0);
  auto gradients = std::make_unique<DistributedGradients>(*net);
  optim::SGD plain(net->parameters(), 1.0);
  const auto train = [&] {
    plain.zero_grad();
    net->forward(::torch::full({1, 1}, rank() + 1.0, f64)).sum().backward();
    expect_close(net->weight.grad(), ::torch::full({1, 1}, mean_rank(), f64));
  };
  train();
  gradients = std::make_unique<DistributedGradients>(*net);  // the old one ends after this begins
  train();
  train();
}

}  // namespace
}  // namespace kolo::internal::testing_support
