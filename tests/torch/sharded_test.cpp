// SPDX-License-Identifier: Apache-2.0
// ShardedOptimizer: the same training as with DistributedOptimizer, in a part of its memory.
#include "sharded_network.hpp"

#include <utility>

namespace kolo::internal::testing_support {
namespace {

using ShardedTest = TorchTest;

constexpr auto train_usually = [](Network& network, auto& optimizer, int step) {
  usual_step(network, optimizer, step);
};

TEST_F(ShardedTest, TrainsAsTheReplicatedOptimizer) {
  expect_same_training<optim::SGD>(optim::SGDOptions(0.1), train_usually);
  expect_same_training<optim::SGD>(
      optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01), train_usually);
  expect_same_training<optim::Adam>(optim::AdamOptions(0.01).weight_decay(0.1), train_usually);
  expect_same_training<optim::Adam>(optim::AdamOptions(0.01).amsgrad(true), train_usually);
  expect_same_training<optim::AdamW>(optim::AdamWOptions(0.01), train_usually, {}, 20);
  expect_same_training<optim::RMSprop>(optim::RMSpropOptions(0.01).momentum(0.5).centered(true),
                                       train_usually);
  // Its constructor makes state, which is divided.
  expect_same_training<optim::Adagrad>(optim::AdagradOptions(0.1).initial_accumulator_value(0.5),
                                       train_usually);
}

TEST_F(ShardedTest, TakesTheOptionsOfTheReplicatedOptimizer) {
  const auto check = [](const DistributedOptimizerOptions& options) {
    expect_same_training<optim::Adam>(optim::AdamOptions(0.01), train_usually, options, 3);
  };
  check({.op = ReduceOp::sum});
  check({.gradient_predivide_factor = 2.0});
  check({.groups = {{"hidden.weight", "output.bias"}, {"hidden.bias"}}});
  check({.num_groups = 2});
  check({.num_groups = 1});
}

// Sums are not rounded to the type in which gradients travel, as an allreduce's are.
TEST_F(ShardedTest, CompressionLosesNoMoreThanThatOfTheReplicatedOptimizer) {
  for (const Compression compression : {Compression::bf16, Compression::fp16}) {
    const auto train = [](auto make) {
      Network network;
      auto optimizer = make(network);
      for (int step = 0; step < 3; ++step) usual_step(network, optimizer, step);
      expect_same_bits_on_all_ranks(network.parameters());
      return flat(network.parameters());
    };
    const ::torch::Tensor replicated = train([&](Network& network) {
      return DistributedOptimizer(optim::SGD(network.parameters(), 0.1), network.named_parameters(),
                                  {.compression = compression});
    });
    const ::torch::Tensor sharded = train([&](Network& network) {
      return ShardedOptimizer(optim::SGD(network.parameters(), 0.1), network.named_parameters(),
                              {.compression = compression});
    });
    expect_close(sharded, replicated, 0.01);
  }
}

TEST_F(ShardedTest, AccumulatesAsTheReplicatedOptimizer) {
  const auto accumulate = [](Network& network, auto& optimizer, int step) {
    optimizer.zero_grad();
    for (int pass = 0; pass < (step == 1 ? 2 : 3); ++pass) network.loss(3 * step + pass).backward();
    optimizer.step();
  };
  const auto base = optim::AdamOptions(0.01);
  expect_same_training<optim::Adam>(base, accumulate);  // each pass is reduced
  expect_same_training<optim::Adam>(base, accumulate, {.backward_passes_per_step = 3});
  expect_same_training<optim::Adam>(
      base, accumulate, {.backward_passes_per_step = 3, .accumulation = Accumulation::mean});
  expect_same_training<optim::Adam>(base, [](Network& network, auto& optimizer, int step) {
    optimizer.zero_grad();
    {
      const auto local = optimizer.no_sync();
      network.loss(2 * step).backward();
    }
    if (step != 2) network.loss(2 * step + 1).backward();
    optimizer.step();
  });
}

TEST_F(ShardedTest, FollowsAModuleThatZeroesItsGradients) {
  for (const bool to_none : {true, false}) {
    SCOPED_TRACE(to_none ? "to none" : "to zero");
    expect_same_training<optim::SGD>(
        optim::SGDOptions(0.1).momentum(0.9), [&](Network& network, auto& optimizer, int step) {
          network.zero_grad(to_none);
          network.loss(2 * step).backward();
          if (step == 2) network.zero_grad(to_none);  // nothing is left of the first pass
          if (step == 3) {
            const auto local = optimizer.no_sync();
            network.zero_grad(to_none);
            network.loss(2 * step + 1).backward();
            network.zero_grad(to_none);
          }
          if (step != 4) network.loss(2 * step + 1).backward();
          if (step == 4) network.zero_grad(to_none);
          optimizer.step();
        });
  }
}

TEST_F(ShardedTest, TakesGradientsThatTheProgramSets) {
  for (const bool in_place : {true, false}) {
    expect_same_training<optim::SGD>(
        optim::SGDOptions(0.1).momentum(0.9), [&](Network& network, auto& optimizer, int step) {
          if (step % 2 == 0) {
            optimizer.zero_grad();
            network.loss(step).backward();
            optimizer.step();
            return;
          }
          for (const ::torch::Tensor& parameter : network.parameters()) {
            const double value = (rank() + 1.0) / (step + 1);
            if (in_place) {
              ::torch::Tensor gradient = parameter.grad();
              gradient.fill_(value);
            } else {
              parameter.mutable_grad() = ::torch::full_like(parameter.detach(), value);
            }
          }
          optimizer.step();
        });
  }
}

// A local gradient that is zero by itself has not been zeroed.
TEST_F(ShardedTest, ALocalGradientOfZeroLeavesWhatIsReduced) {
  ::torch::Tensor whole = parameter({1.0, 2.0, 3.0, 4.0, 5.0});
  ShardedOptimizer optimizer(optim::SGD({whole}, 1.0));
  for (const bool ends_in_step : {true, false}) {
    optimizer.zero_grad();
    const ::torch::Tensor before = whole.detach().clone();
    backward(whole, 1.0);
    {
      const auto local = optimizer.no_sync();
      backward(whole, 0.0);
    }
    if (!ends_in_step) backward(whole, 1.0);
    optimizer.step();
    expect_close(whole, before - (ends_in_step ? 1.0 : 2.0));
  }
}

TEST_F(ShardedTest, AccumulatesOverStepsWithoutZeroGrad) {
  expect_same_training<optim::SGD>(optim::SGDOptions(0.1),
                                   [](Network& network, auto& optimizer, int step) {
                                     network.loss(step).backward();
                                     optimizer.step();
                                   });
}

TEST_F(ShardedTest, ParametersThatOnlySomeRanksUse) {
  const auto base = optim::SGDOptions(0.1).weight_decay(0.1);
  expect_same_training<optim::SGD>(base, [](Network& network, auto& optimizer, int step) {
    optimizer.zero_grad();
    ::torch::Tensor loss = network.convolution->weight.pow(2).sum() * (rank() + 1);
    if (rank() == step % size()) loss = loss + network.hidden->weight.sum();
    loss.backward();
    optimizer.step();  // `output` is used by none, and does not decay
  });
  // A rank without data steps without a pass.
  expect_same_training<optim::SGD>(base, [](Network& network, auto& optimizer, int step) {
    optimizer.zero_grad();
    if (rank() != size() - 1 || size() == 1) network.loss(step).backward();
    optimizer.step();
  });
}

TEST_F(ShardedTest, TakesClosuresAndTiedAndSparseAndFrozenParameters) {
  expect_same_training<optim::SGD>(optim::SGDOptions(0.1),
                                   [](Network& network, auto& optimizer, int step) {
                                     const auto loss = optimizer.step([&] {
                                       optimizer.zero_grad();
                                       ::torch::Tensor own = network.loss(step);
                                       own.backward();
                                       return own;
                                     });
                                     EXPECT_TRUE(loss.defined());
                                   });
  expect_same_training<optim::Adam>(optim::AdamOptions(0.1),
                                    [](Network& network, auto& optimizer, int step) {
                                      network.hidden->weight.set_requires_grad(step % 2 == 0);
                                      usual_step(network, optimizer, step);
                                    });
  const auto train = [](auto&& make) {
    ::torch::manual_seed(3);
    nn::Embedding embedding(nn::EmbeddingOptions(9, 3).sparse(true));
    const ::torch::Tensor tied = embedding->weight;
    auto optimizer = make(tied);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const auto words = ::torch::tensor({rank() % 9, (rank() + step) % 9});
      (embedding->forward(words).pow(2).sum() * (rank() + 1)).backward();
      optimizer.step();
    }
    return tied.detach().clone();
  };
  const auto replicated = train([](const ::torch::Tensor& w) {
    return DistributedOptimizer(optim::SGD({w, w}, 0.1), {{"in", w}, {"out", w}},
                                {.sparse_as_dense = true});
  });
  const auto sharded = train([](const ::torch::Tensor& w) {
    return ShardedOptimizer(optim::SGD({w, w}, 0.1), {{"in", w}, {"out", w}});
  });
  EXPECT_TRUE(same_bits(sharded, replicated));
}

TEST_F(ShardedTest, ParametersMayBeAddedAndReplacedButNotConverted) {
  expect_same_training<optim::Adam>(optim::AdamOptions(0.01),
                                    [](Network& network, auto& optimizer, int step) {
                                      if (step == 2) {  // as torch::load does
                                        for (::torch::Tensor& parameter : network.parameters())
                                          parameter.set_data(parameter.detach() * 0.5);
                                      }
                                      usual_step(network, optimizer, step);
                                    });
  ::torch::Tensor w = parameter({1.0, 2.0, 3.0});
  ::torch::Tensor added = parameter({4.0, 5.0});
  ShardedOptimizer optimizer(optim::SGD({w}, 1.0));
  optimizer.add_param_group(optim::OptimizerParamGroup({added}));
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    ((w.sum() + added.sum()) * (rank() + 1)).backward();
    optimizer.step();
  }
  expect_close(w, values({1.0, 2.0, 3.0}) - 2.0 * mean_rank());
  expect_close(added, values({4.0, 5.0}) - 2.0 * mean_rank());
  w.set_data(w.detach().to(::torch::kFloat32));
  const auto error = error_of<InvalidArgument>([&] { optimizer.step(); });
  EXPECT_THAT(error.what(), HasSubstr("'group0.0' is f32 [3] now"));
}

TEST_F(ShardedTest, KeepsPartsOfTheState) {
  Network network;
  std::int64_t elements = 0;
  for (const auto& parameter : network.parameters()) elements += parameter.numel();
  ShardedOptimizer optimizer(optim::Adam(network.parameters(), 0.01));
  usual_step(network, optimizer, 0);
  std::int64_t mine = 0;
  for (auto& [key, state] : optimizer.state())
    mine += dynamic_cast<optim::AdamParamState&>(*state).exp_avg().numel();
  std::int64_t all = mine;
  allreduce(all, {.op = ReduceOp::sum});
  EXPECT_EQ(all, elements);
  EXPECT_LE(mine, elements / size() + static_cast<std::int64_t>(network.parameters().size()));
  std::size_t bytes = 0;  // size of the gradients
  for (const auto& parameter : network.parameters()) {
    EXPECT_TRUE(parameter.grad().isnan().all().item<bool>());
    bytes += parameter.grad().storage().nbytes();
  }
  EXPECT_EQ(bytes, network.parameters().size() * sizeof(float));
}

// A parameter without a gradient is not stepped, one with zeros is.
TEST_F(ShardedTest, GradientsThatTheModuleHasResetStayUndefined) {
  const auto train = [](auto make) {
    ::torch::Tensor used = parameter({1.0, 2.0, 3.0, 4.0});
    ::torch::Tensor rare = parameter({1.0, 2.0, 3.0, 4.0});
    auto optimizer = make(optim::SGD({used, rare}, optim::SGDOptions(0.1).momentum(0.9)),
                          NamedParameters{{"used", used}, {"rare", rare}});
    for (int step = 0; step < 3; ++step) {
      for (::torch::Tensor* tensor : {&used, &rare}) tensor->mutable_grad().reset();
      optimizer.zero_grad();
      backward(step == 0 ? used * rare : used, rank() + 1);
      optimizer.step();
    }
    return flat({used, rare});
  };
  const ::torch::Tensor whole = train(
      [](auto plain, const auto& names) { return DistributedOptimizer(std::move(plain), names); });
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients})
    EXPECT_TRUE(same_bits(train([&](auto plain, const auto& names) {
                            return ShardedOptimizer(std::move(plain), names, {}, sharding);
                          }),
                          whole));
}

TEST_F(ShardedTest, ARejoinThatFailedMayBeRepeated) {
  if (size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  ::torch::Tensor first = parameter({1.0, 2.0, 3.0});
  ::torch::Tensor second = parameter({1.0, 2.0, 3.0});
  ShardedOptimizer optimizer(optim::SGD({first, second}, 1.0),
                             {{"first", first}, {"second", second}});
  second.set_requires_grad(rank() == 0);
  EXPECT_THROW(optimizer.rejoin(), Mismatch);
  EXPECT_THROW(optimizer.step(), InvalidArgument);
  second.set_requires_grad(true);
  optimizer.rejoin();
  backward(first + second, rank() + 1);
  optimizer.step();
  expect_close(first, values({1.0, 2.0, 3.0}) - mean_rank());
  expect_close(second, values({1.0, 2.0, 3.0}) - mean_rank());
}

TEST_F(ShardedTest, RejoinsWithItsGuardsAndGroups) {
  ::torch::Tensor tied = parameter({1.0, 2.0, 3.0});
  ::torch::Tensor other = parameter({1.0});
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    ShardedOptimizer optimizer(optim::SGD({tied, other}, 1.0),
                               {{"tied", tied}, {"alias", tied}, {"other", other}},
                               {.groups = {{"alias", "other"}}}, sharding);
    ::torch::Tensor added = parameter({1.0, 1.0});
    optimizer.add_param_group(optim::OptimizerParamGroup({added}));
    const at::NoGradGuard no_grad;
    tied.fill_(1.0);
    other.fill_(1.0);
    const at::AutoGradMode on(true);
    {
      const NoSync local = optimizer.no_sync();
      optimizer.rejoin();
      backward(tied, rank() + 1);
      expect_close(tied.grad(), ::torch::full({3}, rank() + 1.0, f64));
    }
    backward(tied, rank() + 1);
    backward(other, rank() + 1);
    backward(added, rank() + 1);
    optimizer.step();
    expect_close(tied, values({1.0, 1.0, 1.0}) - 2 * mean_rank());
    expect_close(other, values({1.0}) - mean_rank());
    expect_close(added, values({1.0, 1.0}) - mean_rank());
  }
}

}  // namespace
}  // namespace kolo::internal::testing_support
