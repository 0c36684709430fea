// SPDX-License-Identifier: Apache-2.0
// DistributedOptimizer: all kinds of gradients that autograd can produce.
#include "support.hpp"

#include <ATen/record_function.h>

#include <atomic>
#include <memory>
#include <string_view>
#include <vector>

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;
using testing::HasSubstr;

using GradientsTest = TorchTest;
using SparseTest = TorchTest;

// A GPU answers only once it has done all queued work.
TEST_F(GradientsTest, ZeroedGradientsAreReadAtMostOnceAPass) {
  static std::atomic<int> reads;
  std::vector<::torch::Tensor> all;
  for (int i = 0; i < 20; ++i) all.push_back(parameter({1.0, 2.0}));
  const auto expect_few_reads = [&](auto& optimizer) {
    const auto backward_of_all = [&] {
      ::torch::Tensor sum = all.front().sum();
      for (std::size_t i = 1; i < all.size(); ++i) sum = sum + all[i].sum();
      (sum * (rank() + 1)).backward();
    };
    for (int step = 0; step < 3; ++step) {
      backward_of_all();
      optimizer.step();
      // As `zero_grad(false)` of the module.
      for (const ::torch::Tensor& tensor : all) tensor.mutable_grad().zero_();
      reads = 0;
      const at::CallbackHandle counting = at::addGlobalCallback(at::RecordFunctionCallback(
          [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
            if (std::string_view(call.name()) == "aten::_local_scalar_dense") ++reads;
            return nullptr;
          }));
      backward_of_all();
      at::removeCallback(counting);
      EXPECT_LE(reads, 1);
    }
  };
  DistributedOptimizer whole(optim::SGD(all, 1.0));
  expect_few_reads(whole);
  for (::torch::Tensor& tensor : all) tensor = parameter({1.0, 2.0});
  ShardedOptimizer sharded(optim::SGD(all, 1.0));
  expect_few_reads(sharded);
}

TEST_F(GradientsTest, AParameterMayBeUsedThreeTimes) {
  ::torch::Tensor w = parameter({2.0});
  DistributedOptimizer optimizer(optim::SGD({w}, 1.0));
  (w * w * w * (rank() + 1)).sum().backward();
  optimizer.step();
  expect_close(w, values({2.0 - 12.0 * mean_rank()}));
}

// The penalty on the gradient of the loss w.r.t. the input needs a second derivative:
// loss = a * w * x, d loss / d x = a * w, and the whole is a * w * x + (a * w)^2 / 2.
TEST_F(GradientsTest, GradientPenaltiesAreReduced) {
  ::torch::Tensor w = parameter({3.0});
  DistributedOptimizer optimizer(optim::SGD({w}, 0.1));
  const double a = rank() + 1;
  const ::torch::Tensor x = parameter({2.0});
  const ::torch::Tensor loss = (w * x * a).sum();
  const auto slope = ::torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true,
                                             /*create_graph=*/true);
  (loss + slope.front().pow(2).sum() / 2.0).backward();
  optimizer.step();
  const double mean_square = (size() + 1) * (2 * size() + 1) / 6.0;
  expect_close(w, values({3.0 - 0.1 * (2.0 * mean_rank() + 3.0 * mean_square)}));
}

TEST_F(GradientsTest, ChannelsLastConvolutionsAreReduced) {
  ::torch::manual_seed(3);
  nn::Conv2d reference(nn::Conv2dOptions(3, 4, 3));
  nn::Conv2d convolution(nn::Conv2dOptions(3, 4, 3));
  for (auto* layer : {&reference, &convolution}) (*layer)->to(::torch::kFloat64);
  {
    const ::torch::NoGradGuard no_grad;
    convolution->weight.copy_(reference->weight);
    convolution->bias.copy_(reference->bias);
  }
  convolution->weight.set_data(
      convolution->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
  DistributedOptimizer optimizer(optim::SGD(convolution->parameters(), 0.1),
                                 convolution->named_parameters());
  const auto images = ::torch::randn({2, 3, 6, 6}, ::torch::kFloat64);
  (reference->forward(images).pow(2).sum() * mean_rank()).backward();
  convolution->forward(images.contiguous(at::MemoryFormat::ChannelsLast))
      .pow(2)
      .sum()
      .mul(rank() + 1)
      .backward();
  optimizer.synchronize();
  expect_close(convolution->weight.grad(), reference->weight.grad(), 1e-9);
  expect_close(convolution->bias.grad(), reference->bias.grad(), 1e-9);
}

TEST_F(GradientsTest, GradientsMayComeAndGo) {
  ::torch::Tensor a = parameter({1.0});
  ::torch::Tensor b = parameter({1.0});
  DistributedOptimizer optimizer(optim::SGD({a, b}, 1.0), {{"a", a}, {"b", b}});
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    // Undefined, as zero_grad leaves them in LibTorch 2.
    if (step % 2 == 1) a.mutable_grad().reset();
    b.mutable_grad().reset();
    ((step < 2 ? a : b) * (rank() + 1)).sum().backward();
    optimizer.step();
  }
  expect_close(a, values({1.0 - 2.0 * mean_rank()}));
  expect_close(b, values({1.0 - 2.0 * mean_rank()}));
}

TEST_F(GradientsTest, ConvertedParametersAccumulateAgain) {
  ::torch::Tensor w = ::torch::ones({2}, ::torch::kFloat32).requires_grad_();
  DistributedOptimizer optimizer(
      optim::SGD({w}, 1.0), {.backward_passes_per_step = 2, .accumulation = Accumulation::mean});
  w.set_data(w.detach().to(::torch::kFloat64));  // as to(dtype) does
  for (int step = 0; step < 2; ++step) {
    for (int pass = 0; pass < 2; ++pass) (w * (rank() + 1)).sum().backward();
    optimizer.step();
    w.mutable_grad().reset();
  }
  expect_close(w, values({1.0, 1.0}) - 2.0 * mean_rank());
  // The hooks are back, so gradients are final before a step.
  for (int pass = 0; pass < 2; ++pass) (w * (rank() + 1)).sum().backward();
  expect_close(w.grad(), values({mean_rank(), mean_rank()}));
}

// All elements of an expanded gradient are one number in memory.
TEST_F(GradientsTest, ExpandedGradientsAreReduced) {
  const auto train = [](auto make, bool everywhere) {
    ::torch::Tensor a = ::torch::ones({6, 4}, f64).set_requires_grad(true);
    ::torch::Tensor b = ::torch::ones({4}, f64).set_requires_grad(true);
    auto optimizer = make(optim::SGD({a, b}, 1.0), NamedParameters{{"a", a}, {"b", b}});
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      const ::torch::Tensor loss = (a.sum() + (b * 2.0).sum()) * (rank() + 1);
      const auto slopes = ::torch::autograd::grad({loss}, {a, b});
      EXPECT_EQ(slopes[0].stride(0), 0);
      const bool expanded = everywhere || rank() == 0;
      a.mutable_grad() = expanded ? slopes[0] : slopes[0].contiguous();
      b.mutable_grad() = slopes[1];
      optimizer.step();
    }
    expect_close(a, ::torch::full_like(a, 1.0 - 2.0 * mean_rank()));
    expect_close(b, ::torch::full_like(b, 1.0 - 4.0 * mean_rank()));
  };
  for (const bool everywhere : {true, false}) {
    train([](auto sgd, auto names) { return DistributedOptimizer(std::move(sgd), names); },
          everywhere);
    for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients})
      train([&](auto sgd,
                auto names) { return ShardedOptimizer(std::move(sgd), names, {}, sharding); },
            everywhere);
  }
}

constexpr std::int64_t rows = 8;

nn::Embedding make_embedding() {
  nn::Embedding embedding(nn::EmbeddingOptions(rows, 2).sparse(true));
  embedding->to(::torch::kFloat64);
  const ::torch::NoGradGuard no_grad;
  embedding->weight.zero_();
  return embedding;
}

// Looks up row 0 twice, row rank + 1, and row 5 on rank 0.
void look_up(nn::Embedding& embedding) {
  std::vector<std::int64_t> indices{0, rank() + 1, 0};
  if (rank() == 0) indices.push_back(5);
  (embedding->forward(::torch::tensor(indices, ::torch::kInt64)) * (rank() + 1)).sum().backward();
}

// The sum over the ranks of the gradients of `look_up`.
::torch::Tensor expected_sum() {
  ::torch::Tensor sum = ::torch::zeros({rows, 2}, ::torch::kFloat64);
  for (int r = 0; r < size(); ++r) {
    sum[0] += 2.0 * (r + 1);
    sum[r + 1] += r + 1.0;
  }
  sum[5] += 1.0;
  return sum;
}

TEST_F(SparseTest, SparseGradientsAreAveragedAndStaySparse) {
  auto embedding = make_embedding();
  DistributedOptimizer optimizer(optim::SGD(embedding->parameters(), 1.0),
                                 embedding->named_parameters());
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    look_up(embedding);
    optimizer.synchronize();
    const ::torch::Tensor gradient = embedding->weight.grad();
    ASSERT_TRUE(gradient.is_sparse());
    EXPECT_TRUE(gradient.is_coalesced());
    EXPECT_EQ(gradient._nnz(), size() + 2);
    expect_close(gradient.to_dense(), expected_sum() / size());
    optimizer.step();
  }
  expect_close(embedding->weight, -3.0 * expected_sum() / size());
  expect_same_bits_on_all_ranks({embedding->weight});
}

TEST_F(SparseTest, SparseGradientsAreSummedOverPasses) {
  auto embedding = make_embedding();
  DistributedOptimizer optimizer(
      optim::SGD(embedding->parameters(), 1.0), embedding->named_parameters(),
      {.op = ReduceOp::sum, .backward_passes_per_step = 3, .accumulation = Accumulation::mean});
  for (int pass = 0; pass < 2; ++pass) look_up(embedding);  // one pass fewer
  optimizer.step();
  expect_close(embedding->weight, -expected_sum());
}

TEST_F(SparseTest, SparseGradientsMayTravelDense) {
  auto embedding = make_embedding();
  DistributedOptimizer optimizer(optim::SGD(embedding->parameters(), 1.0),
                                 embedding->named_parameters(),
                                 {.groups = {{"weight"}}, .sparse_as_dense = true});
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    look_up(embedding);
    optimizer.synchronize();
    EXPECT_FALSE(embedding->weight.grad().is_sparse());
    optimizer.step();
  }
  expect_close(embedding->weight, -2.0 * expected_sum() / size());
}

TEST_F(SparseTest, ARankMayHaveNoRowsToLookUp) {
  auto embedding = make_embedding();
  DistributedOptimizer optimizer(optim::SGD(embedding->parameters(), 1.0),
                                 embedding->named_parameters(), {.op = ReduceOp::sum});
  look_up(embedding);
  optimizer.step();
  for (const bool undefined : {false, true}) {
    optimizer.zero_grad();
    if (undefined) embedding->weight.mutable_grad().reset();
    if (rank() == 0) look_up(embedding);  // the others run no backward
    optimizer.step();
  }
  ::torch::Tensor of_rank_0 = ::torch::zeros({rows, 2}, ::torch::kFloat64);
  of_rank_0[0] = 2.0;
  of_rank_0[1] = 1.0;
  of_rank_0[5] = 1.0;
  expect_close(embedding->weight, -expected_sum() - 2.0 * of_rank_0);
}

TEST_F(SparseTest, RanksAtDifferentStepsAreNoticed) {
  if (size() == 1) return;
  auto embedding = make_embedding();
  DistributedOptimizer optimizer(optim::SGD(embedding->parameters(), 1.0),
                                 embedding->named_parameters());
  look_up(embedding);
  if (rank() != 0) optimizer.step();
  const auto error = error_of<Mismatch>([&] { look_up(embedding); });
  EXPECT_THAT(error.what(), HasSubstr("step 1 on rank 0"));
}

// The ranks agree on what is missing, so the first to look up may be any.
TEST_F(SparseTest, ARankThatHasNotLookedUpYetTakesPart) {
  auto embedding = make_embedding();
  ::torch::Tensor w = parameter({1.0});
  DistributedOptimizer optimizer(optim::SGD({embedding->weight, w}, 1.0));
  for (int pass = 0; pass < 2; ++pass) {
    backward(w, 1.0);
    if (rank() == 0) look_up(embedding);
    if (rank() != 0) backward(w, 0.0);
  }
  EXPECT_TRUE(embedding->weight.grad().is_sparse());
  EXPECT_NEAR(embedding->weight.grad().to_dense()[5][0].item<double>(), 2.0 / size(), 1e-12);
  expect_close(w.grad(), values({2.0}));
}

TEST_F(SparseTest, SeveralPassesAddUp) {
  for (const ReduceOp op : {ReduceOp::average, ReduceOp::sum}) {
    auto embedding = make_embedding();
    DistributedOptimizer optimizer(optim::SGD(embedding->parameters(), 1.0),
                                   embedding->named_parameters(), {.op = op});
    for (int pass = 0; pass < 3; ++pass) look_up(embedding);
    const double divisor = op == ReduceOp::average ? size() : 1.0;
    expect_close(embedding->weight.grad().to_dense(), 3.0 * expected_sum() / divisor, 1e-9);
  }
}

TEST_F(SparseTest, WhatCannotBeReducedIsRefused) {
  auto embedding = make_embedding();
  DistributedOptimizer grouped(optim::SGD(embedding->parameters(), 1.0),
                               embedding->named_parameters(), {.num_groups = 1});
  const auto in_group = error_of<InvalidArgument>([&] { look_up(embedding); });
  EXPECT_EQ(in_group.tensor(), "weight");
  EXPECT_THAT(in_group.what(), HasSubstr("sparse_as_dense"));

  auto another = make_embedding();
  DistributedOptimizer adasum(optim::SGD(another->parameters(), 1.0), another->named_parameters(),
                              {.op = ReduceOp::adasum});
  EXPECT_THAT(error_of<InvalidArgument>([&] { look_up(another); }).what(), HasSubstr("adasum"));
}

}  // namespace
}  // namespace kolo::internal::testing_support
