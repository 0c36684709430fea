// SPDX-License-Identifier: Apache-2.0
// Gradient checkpointing: the same bits as without it.
#include "support.hpp"

#include <functional>

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using testing::HasSubstr;
using ::torch::Tensor;

class CheckpointedTest : public TorchTest {
 protected:
  using Layer = std::function<Tensor(const Tensor&)>;

  static Tensor call(const Layer& layer, const Tensor& x, bool is_checkpointed) {
    return is_checkpointed ? checkpointed(layer, x) : layer(x);
  }
  /// Trains a network with and without checkpoints, and expects the same parameters.
  static void expect_same(const std::function<std::vector<Tensor>(bool)>& train) {
    const std::vector<Tensor> plain = train(false);
    const std::vector<Tensor> again = train(true);
    EXPECT_TRUE(same_bits(flat(plain), flat(again)));
    expect_same_bits_on_all_ranks(again);
  }
};

TEST_F(CheckpointedTest, ANetworkWithDropoutIsTrainedAlike) {
  expect_same([](bool is_checkpointed) {
    ::torch::manual_seed(1);
    std::vector<nn::Sequential> blocks;
    std::vector<Tensor> parameters;
    for (int i = 0; i < 2; ++i) {
      blocks.emplace_back(nn::Linear(4, 8), nn::Dropout(0.5), nn::Linear(8, 4), nn::Tanh());
      for (const Tensor& w : blocks.back()->parameters()) parameters.push_back(w);
    }
    nn::Linear head(4, 1);
    for (const Tensor& w : head->parameters()) parameters.push_back(w);
    DistributedOptimizer optimizer(optim::SGD(parameters, 0.1));
    ::torch::manual_seed(100 + static_cast<std::uint64_t>(rank()));
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      Tensor x = ::torch::randn({5, 4});  // requires no gradient
      for (nn::Sequential& block : blocks)
        x = call([block](const Tensor& in) mutable { return block->forward(in); }, x,
                 is_checkpointed);
      (head->forward(x).pow(2).sum() * ::torch::rand({})).backward();
      optimizer.step();
    }
    Tensor next = ::torch::rand({3});  // the random numbers go on alike
    broadcast_(next, 0);
    parameters.push_back(next);
    return parameters;
  });
}

// A recurrent layer, with a sequence of another length on each rank, among the head's gradients.
TEST_F(CheckpointedTest, ASharedWeightIsTrainedAlike) {
  for (const bool sharded : {false, true}) {
    expect_same([&](bool is_checkpointed) {
      ::torch::manual_seed(1);
      nn::Linear cell(3, 3);
      nn::Linear head(3, 1);
      nn::Sequential model(cell, head);
      model->to(f64);
      const auto train = [&](auto optimizer) {
        for (int step = 0; step < 3; ++step) {
          optimizer.zero_grad();
          Tensor h = ::torch::ones({1, 3}, f64) * (rank() + 1);
          for (int i = 0; i < (rank() == 0 ? 4 : 1); ++i)
            h = call([cell](const Tensor& in) mutable { return ::torch::tanh(cell->forward(in)); },
                     h, is_checkpointed);
          const Tensor loss = rank() + 1 == size() ? h.sum() : head->forward(h).sum();
          loss.backward();
          optimizer.step();
        }
      };
      optim::SGD sgd(model->parameters(), 0.125);
      if (sharded)
        train(ShardedOptimizer(std::move(sgd), model->named_parameters()));
      else
        train(DistributedOptimizer(std::move(sgd), model->named_parameters()));
      std::vector<Tensor> rounded;  // the sums are in another order
      for (const Tensor& w : model->parameters()) rounded.push_back((w.detach() * 1e9).round());
      return rounded;
    });
  }
}

TEST_F(CheckpointedTest, SynchronizedStatisticsAreOfAllRanks) {
  expect_same([](bool is_checkpointed) {
    ::torch::manual_seed(1);
    nn::Sequential block(nn::Linear(3, 4), SyncBatchNorm(4));
    block->to(f64);
    const DistributedGradients gradients(*block);
    optim::SGD optimizer(block->parameters(), 0.1);
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      const Tensor x = ::torch::arange(6, f64).reshape({2, 3}) * (rank() + 1);
      call([block](const Tensor& in) mutable { return block->forward(in); }, x, is_checkpointed)
          .pow(3)
          .sum()
          .backward();
      optimizer.step();
    }
    return block->parameters();
  });
}

TEST_F(CheckpointedTest, ManyTensorsAndMixedPrecision) {
  expect_same([](bool is_checkpointed) {
    Tensor w = parameter({1.0, 2.0});
    Tensor a = parameter({3.0, 5.0});
    const DistributedOptimizer optimizer(optim::SGD({w, a}, 1.0));
    const auto function = [w](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{in[0] * w, in[1] + 1.0, (in[0] * w * w).sum()};
    };
    const std::vector<Tensor> inputs{a, values({7.0, 7.0})};
    const auto out = is_checkpointed ? checkpointed(function, inputs) : function(inputs);
    expect_close(out[1], values({8.0, 8.0}));
    (out[0].sum() + out[2] * (rank() + 1)).backward();
    return std::vector<Tensor>{w.grad(), a.grad()};
  });
  const Tensor w = ::torch::full({4, 4}, 1.0 / 3.0).set_requires_grad(true);
  Tensor seen;
  const Layer layer = [&](const Tensor& in) {
    seen = ::torch::matmul(in, w);
    return seen;
  };
  Tensor result;
  {
    const Autocast autocast(::torch::kCPU, ::torch::kBFloat16);
    result = checkpointed(layer, ::torch::ones({2, 4}));
  }
  seen.reset();
  result.sum().backward();
  EXPECT_EQ(seen.scalar_type(), ::torch::kBFloat16);
  EXPECT_EQ(w.grad().scalar_type(), ::torch::kFloat32);
}

// LibTorch caches parameters in lower precision until autocast ends. The weight is used inside a
// checkpoint and outside, as that of a tied embedding is.
TEST_F(CheckpointedTest, AWeightInMixedPrecisionGetsTheGradientsOfAllUses) {
  for (const bool backward_inside : {false, true}) {
    expect_same([&](bool is_checkpointed) {
      const Tensor w = ::torch::full({4, 4}, 1.0 / 3.0).set_requires_grad(true);
      const Layer layer = [&](const Tensor& in) { return ::torch::matmul(in, w); };
      Tensor loss;
      const Autocast autocast(::torch::kCPU, ::torch::kBFloat16);
      const Tensor first = call(layer, ::torch::ones({2, 4}), is_checkpointed);
      loss = first.sum() + layer(::torch::ones({1, 4}) * 3.0).sum();
      if (backward_inside) {
        loss.backward();
      } else {
        const Autocast off(::torch::kCPU, ::torch::kBFloat16, /*enabled=*/false);
        loss.backward();
      }
      return std::vector<Tensor>{w.grad()};
    });
  }
}

TEST_F(CheckpointedTest, UndefinedResultsStayUndefined) {
  const Tensor w = parameter({2.0});
  const auto function = [w](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{Tensor(), in[0] * w, Tensor()};
  };
  const std::vector<Tensor> results = checkpointed(function, {values({3.0})});
  ASSERT_EQ(results.size(), 3U);
  EXPECT_FALSE(results[0].defined() || results[2].defined());
  results[1].sum().backward();
  expect_close(w.grad(), values({3.0}));
  EXPECT_EQ(error_of<InvalidArgument>([&] {
              static_cast<void>(checkpointed(function, {Tensor()}));
            }).what(),
            std::string("checkpointed: input 0 is undefined"));
}

TEST_F(CheckpointedTest, WhatCannotWorkIsRefused) {
  const Tensor w = parameter({1.0});
  const Tensor x = parameter({1.0});
  const Tensor y = checkpointed([w](const Tensor& in) { return in * w; }, x).sum();
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                static_cast<void>(::torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true));
              }).what(),
              HasSubstr("backward() without inputs"));
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                y.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
              }).what(),
              HasSubstr("create_graph"));
  // The second call would find the changed input.
  for (const Tensor& input : {values({1.0}), x * 1.0})
    EXPECT_THAT(error_of<InvalidArgument>([&] {
                  static_cast<void>(checkpointed(
                      [w](const Tensor& in) {
                        Tensor changed = in;
                        return changed.mul_(2.0) * w;
                      },
                      input));
                }).what(),
                HasSubstr("changes input 0 in place"));
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(checkpointed([w](const Tensor& in) { return in * w; }, x).requires_grad());
}

}  // namespace
}  // namespace kolo::internal::testing_support
