// SPDX-License-Identifier: Apache-2.0
// Collectives on LibTorch tensors, their gradients, and archives.
#include "support.hpp"

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
using testing::HasSubstr;
using ::torch::Tensor;

using CollectivesTest = TorchTest;
using CollectiveGradientsTest = TorchTest;
using ArchiveTest = TorchTest;

TEST_F(CollectivesTest, AsynchronousAllreduceInAndOutOfPlace) {
  auto future = allreduce_async(full(3, rank() + 1.0), {.name = "temporary", .op = ReduceOp::sum});
  Tensor changed = full(2, rank() + 1.0);
  auto in_place = allreduce_async_(changed, {.name = "changed"});
  expect_close(future.get(), full(3, mean_rank() * size()));
  EXPECT_TRUE(in_place.get().is_same(changed));
  expect_close(changed, full(2, mean_rank()));
  const Tensor with_gaps = full(3, 1.0).select(1, 0);
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                static_cast<void>(allreduce_async_(with_gaps, {.name = "x"}));
              }).what(),
              HasSubstr("is not dense in memory"));
  Tensor expanded = full(1, 1.0).expand({3, 2, 2});
  EXPECT_THAT(error_of<InvalidArgument>([&] { allreduce_(expanded, {.name = "y"}); }).what(),
              testing::AllOf(HasSubstr("'y'"), HasSubstr("share memory")));
}

// As torch::imag(z.conj()) makes them.
TEST_F(CollectivesTest, TensorsWhoseMemoryHasTheNegatedElements) {
  const auto negative = [](bool is_view) {
    return is_view ? ::torch::imag(::torch::complex(values({1.0}), values({3.0})).conj())
                   : values({-3.0});
  };
  for (const bool everywhere : {true, false}) {
    Tensor tensor = negative(everywhere || rank() == 0);
    expect_close(allreduce(tensor, {.name = "out of place"}), values({-3.0}));
    expect_close(broadcast(tensor, 0), values({-3.0}));
    expect_close(allgather(tensor), ::torch::full({size()}, -3.0, f64));
  }
  Tensor changed = negative(true);
  EXPECT_THAT(error_of<InvalidArgument>([&] { allreduce_(changed, {.name = "in place"}); }).what(),
              HasSubstr("resolve_neg()"));
  Tensor w = parameter({1.0});
  DistributedOptimizer optimizer(::torch::optim::SGD({w}, 1.0));
  w.mutable_grad() = negative(rank() == 0);
  optimizer.step();
  expect_close(w, values({4.0}));
}

TEST_F(CollectivesTest, GathersDifferentNumbersOfRows) {
  const std::int64_t total = size() * (size() - 1) / 2;
  const auto expect_all = [&](const Tensor& all) {
    ASSERT_EQ(all.sizes(), (std::vector<std::int64_t>{total, 2}));
    std::int64_t row = 0;
    for (int r = 0; r < size(); row += r, ++r) expect_close(all.narrow(0, row, r), full(r, r));
  };
  expect_all(allgather(full(rank(), rank()), {.name = "rows"}));
  expect_all(allgather_async(full(rank(), rank())).get());
  const Tensor scalars = allgather(::torch::scalar_tensor(rank() + 1.0, f64));
  expect_close(scalars, ::torch::arange(1, size() + 1, f64));
}

TEST_F(CollectivesTest, BroadcastsOutOfPlace) {
  const int root = size() - 1;
  const Tensor mine = full(2, rank()).t();  // not in row-major order
  expect_close(broadcast(mine, root), full(2, root).t());
  expect_close(mine, full(2, rank()).t());
  expect_close(broadcast_async(mine, root).get(), full(2, root).t());
  const Tensor changed = full(2, rank());
  EXPECT_TRUE(broadcast_async_(changed, root).get().is_same(changed));
  expect_close(changed, full(2, root));
}

// Rank r sends i + 1 rows of the value r to rank i.
TEST_F(CollectivesTest, SendsRowsToEveryRank) {
  std::vector<std::int64_t> splits;
  for (int i = 0; i < size(); ++i) splits.push_back(i + 1);
  const Tensor input = full(size() * (size() + 1) / 2, rank());
  const auto expect_received = [&](const Received& received) {
    const std::int64_t mine = rank() + 1;
    EXPECT_EQ(received.splits, std::vector<std::int64_t>(static_cast<std::size_t>(size()), mine));
    for (int r = 0; r < size(); ++r) {
      expect_close(received.output.narrow(0, r * mine, mine), full(mine, r));
    }
  };
  expect_received(alltoall(input, splits));
  expect_received(alltoall_async(input, splits, {.name = "async"}).get());

  const Received equal = alltoall(::torch::arange(size(), f64) + 10.0 * rank());
  expect_close(equal.output, ::torch::arange(size(), f64) * 10.0 + rank());
  expect_close(alltoall_async(full(size(), 1.0)).get().output, full(size(), 1.0));
  error_of<InvalidArgument>([&] { static_cast<void>(alltoall(full(2, 0.0), {3})); });
}

TEST_F(CollectivesTest, ScattersWhatIsReduced) {
  const std::int64_t rows = 2 * size() + 1;
  const Tensor input = weights(rows, rank() + 1.0);
  std::int64_t first = 0;
  for (int r = 0; r < rank(); ++r) first += reducescatter_rows(rows, r, size());
  const Tensor expected =
      weights(rows, mean_rank()).narrow(0, first, reducescatter_rows(rows, rank(), size()));
  expect_close(reducescatter(input), expected);
  expect_close(reducescatter_async(input.clone(), {.op = ReduceOp::sum}).get(), expected * size());
  error_of<InvalidArgument>([&] { static_cast<void>(reducescatter(::torch::scalar_tensor(1.0))); });
}

TEST_F(CollectivesTest, WorkInAProcessSet) {
  if (size() == 1) return;
  const ProcessSet pair = add_process_set({0, size() - 1});
  if (pair.rank() < 0) return;
  const double mean = (size() + 1) / 2.0;
  expect_close(allreduce(full(1, rank() + 1.0), {.process_set = pair}), full(1, mean));
  expect_close(allgather(full(1, rank()), {.process_set = pair}).select(1, 0),
               values({0.0, size() - 1.0}));
  Tensor x = full(2, rank()).requires_grad_();
  (allgather(x, {.process_set = pair}) * weights(4, rank() + 1.0)).sum().backward();
  expect_close(x.grad(), weights(4, size() + 1.0).narrow(0, 2 * pair.rank(), 2));
}

// In the following tests, rank r's loss is the sum of its result times weights times (r + 1), and
// the gradient is that of the sum of all losses.

TEST_F(CollectiveGradientsTest, OfAllreduce) {
  const double ranks = mean_rank() * size();
  for (const auto op : {ReduceOp::sum, ReduceOp::average}) {
    Tensor x = full(3, 1.0).requires_grad_();
    const Tensor y = allreduce(x, {.name = "x", .op = op, .prescale = 2.0, .postscale = 3.0});
    EXPECT_TRUE(y.requires_grad());
    (y * weights(3, rank() + 1.0)).sum().backward();
    const double divisor = op == ReduceOp::average ? size() : 1.0;
    expect_close(x.grad(), weights(3, 6.0 * ranks / divisor));
  }
}

TEST_F(CollectiveGradientsTest, OfOtherReductionsAreRefused) {
  Tensor x = full(1, rank()).requires_grad_();
  const Tensor y = allreduce(x, {.op = ReduceOp::max});
  expect_close(y.detach(), full(1, size() - 1));
  EXPECT_THAT(error_of<InvalidArgument>([&] { y.sum().backward(); }).what(), HasSubstr("max"));
}

TEST_F(CollectiveGradientsTest, OfAllgather) {
  const std::int64_t rows = size() * (size() + 1) / 2;
  Tensor x = full(rank() + 1, 1.0).requires_grad_();
  (allgather(x) * weights(rows, rank() + 1.0)).sum().backward();
  const Tensor of_all = weights(rows, mean_rank() * size());
  expect_close(x.grad(), of_all.narrow(0, rank() * (rank() + 1) / 2, rank() + 1));

  Tensor scalar = ::torch::scalar_tensor(1.0, f64).requires_grad_();
  (allgather(scalar) * ::torch::arange(1, size() + 1, f64)).sum().backward();
  expect_close(scalar.grad(), ::torch::scalar_tensor((rank() + 1.0) * size(), f64));
}

TEST_F(CollectiveGradientsTest, OfBroadcast) {
  const int root = size() - 1;
  Tensor x = full(2, rank()).requires_grad_();
  (broadcast(x, root) * weights(2, rank() + 1.0)).sum().backward();
  expect_close(x.grad(), weights(2, rank() == root ? mean_rank() * size() : 0.0));
}

// Rank r sends i + 1 rows to rank i, where they begin at row r * (i + 1).
TEST_F(CollectiveGradientsTest, OfAlltoall) {
  std::vector<std::int64_t> splits;
  for (int i = 0; i < size(); ++i) splits.push_back(i + 1);
  Tensor x = full(size() * (size() + 1) / 2, 1.0).requires_grad_();
  const Received received = alltoall(x, splits);
  (received.output * weights(size() * (rank() + 1), rank() + 1.0)).sum().backward();
  std::vector<Tensor> expected;
  for (int i = 0; i < size(); ++i) {
    expected.push_back(weights(size() * (i + 1), i + 1.0).narrow(0, rank() * (i + 1), i + 1));
  }
  expect_close(x.grad(), ::torch::cat(expected));
}

TEST_F(CollectiveGradientsTest, OfReducescatter) {
  const std::int64_t rows = 2 * size() + 1;
  for (const auto op : {ReduceOp::sum, ReduceOp::average}) {
    Tensor x = full(rows, 1.0).requires_grad_();
    const Tensor y = reducescatter(x, {.op = op, .postscale = 0.5});
    (y * weights(y.size(0), rank() + 1.0)).sum().backward();
    std::vector<Tensor> expected;
    for (int r = 0; r < size(); ++r) {
      expected.push_back(weights(reducescatter_rows(rows, r, size()), r + 1.0));
    }
    const double divisor = op == ReduceOp::average ? size() : 1.0;
    expect_close(x.grad(), ::torch::cat(expected) * 0.5 / divisor);
  }
}

// y is the sum of the ranks' x. With the loss y^3 / 6 on each of n ranks the gradient is n * y^2 /
// 2, and that of the sum of all ranks' gradients is n * n * y.
TEST_F(CollectiveGradientsTest, HaveDerivativesThemselves) {
  Tensor x = ::torch::full({1}, rank() + 1.0, f64).requires_grad_();
  const Tensor y = allreduce(x, {.name = "y", .op = ReduceOp::sum});
  const auto first =
      ::torch::autograd::grad({(y * y * y / 6.0).sum()}, {x}, {}, /*retain_graph=*/true,
                              /*create_graph=*/true);
  const double n = size();
  const double sum = mean_rank() * n;
  expect_close(first.front().detach(), values({n * sum * sum / 2.0}));
  first.front().sum().backward();
  expect_close(x.grad(), values({n * n * sum}));
}

TEST_F(CollectiveGradientsTest, AreNotRecordedWithoutNeed) {
  const Tensor x = full(1, 1.0).requires_grad_();
  const ::torch::NoGradGuard no_grad;
  EXPECT_FALSE(allreduce(x).requires_grad());
  EXPECT_FALSE(allgather(x).requires_grad());
}

TEST_F(CollectiveGradientsTest, TensorsThatWereChangedAreNotedByAutograd) {
  Tensor x = full(1, 2.0);
  Tensor w = full(1, 3.0).requires_grad_();
  const Tensor y = (w * x).sum();
  allreduce_(x);
  EXPECT_THROW(y.backward(), c10::Error);
}

TEST_F(ArchiveTest, WhateverCanBeSavedTravels) {
  const int root = size() - 1;
  Tensor tensor = full(rank() + 1, rank());
  broadcast_archive(tensor, root);
  expect_close(tensor, full(root + 1, root));

  std::vector<Tensor> tensors(static_cast<std::size_t>(rank() + 1), full(1, rank()));
  broadcast_archive(tensors, root, {.name = "list"});
  EXPECT_EQ(tensors.size(), static_cast<std::size_t>(root + 1));

  nn::Linear model(3, 2);
  {
    const ::torch::NoGradGuard no_grad;
    model->weight.fill_(rank());
  }
  broadcast_archive(model, root);
  EXPECT_TRUE(model->weight.eq(root).all().item<bool>());
}

TEST_F(ArchiveTest, ARankThatCannotLoadIsNamed) {
  if (size() == 1) return;
  nn::Linear linear(3, 2);
  nn::BatchNorm1d other(3);
  const auto error = error_of<Error>([&] {
    if (rank() == size() - 1) {
      broadcast_archive(other, 0);
    } else {
      broadcast_archive(linear, 0);
    }
  });
  EXPECT_EQ(error.ranks(), std::vector<int>{size() - 1});
  nn::Linear wide(rank() == 0 ? 3 : 4, 2);
  error_of<Error>([&] { broadcast_archive(wide, 0); });
  EXPECT_EQ(wide->weight.size(1), rank() == 0 ? 3 : 4);
  EXPECT_DOUBLE_EQ(average(rank() + 1.0), mean_rank());
  error_of<InvalidArgument>([&] { broadcast_archive(linear, size()); });
}

}  // namespace
}  // namespace kolo::internal::testing_support
