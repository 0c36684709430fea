// SPDX-License-Identifier: Apache-2.0
// Grouped collectives on LibTorch tensors, and their gradients.
#include <string>

#include "support.hpp"

namespace kolo::internal::testing_support {
namespace {

using testing::HasSubstr;
using ::torch::Tensor;

using GroupsTest = TorchTest;
using GroupGradientsTest = TorchTest;

constexpr auto f32 = ::torch::kFloat32;
constexpr auto i64 = ::torch::kInt64;

void expect_same(const Tensor& actual, const Tensor& expected) {
  EXPECT_EQ(actual.scalar_type(), expected.scalar_type());
  expect_close(actual, expected, 0.0);
}

// The number of shared `rows` that belong to members before this rank.
std::int64_t rows_before(std::int64_t rows) {
  std::int64_t before = 0;
  for (int r = 0; r < rank(); ++r) before += reducescatter_rows(rows, r, size());
  return before;
}

Tensor own_rows(const Tensor& all) {
  const std::int64_t rows = all.size(0);
  return all.narrow(0, rows_before(rows), reducescatter_rows(rows, rank(), size()));
}

// The contribution of all ranks' losses to the gradient of shared `rows`: each rank's weights.
Tensor gathered_weights(std::int64_t rows) {
  std::vector<Tensor> all;
  for (int r = 0; r < size(); ++r) {
    all.push_back(weights(reducescatter_rows(rows, r, size()), r + 1.0));
  }
  return ::torch::cat(all);
}

TEST_F(GroupsTest, AreReducedInAndOutOfPlace) {
  const Tensor a = full(2, rank() + 1.0);
  const Tensor b = ::torch::full({3}, rank(), ::torch::kInt64);
  const auto sums = grouped_allreduce({a, b}, {.name = "g", .op = ReduceOp::sum});
  ASSERT_EQ(sums.size(), 2U);
  expect_close(sums[0], full(2, mean_rank() * size()));
  EXPECT_EQ(sums[1].sum().item<std::int64_t>(), 3 * size() * (size() - 1) / 2);
  expect_close(a, full(2, rank() + 1.0));

  Tensor matrix = ::torch::zeros({2, 3}, f64);
  Tensor column = matrix.select(1, 1);
  column.fill_(rank() + 1.0);
  grouped_allreduce_({a, column});
  expect_close(a, full(2, mean_rank()));
  EXPECT_DOUBLE_EQ(matrix.sum().item<double>(), 2.0 * mean_rank());

  const auto doubled = grouped_allreduce_async_({a}, {.op = ReduceOp::sum}).get();
  EXPECT_TRUE(doubled.front().is_same(a));
  expect_close(a, full(2, mean_rank() * size()));
}

// Rank r has r rows of r, r + 1 integers 10 r, a scalar r + 1, an empty tensor, and two columns
// that are not in row-major order.
TEST_F(GroupsTest, GatherRowsOfAnyTypeAndNumber) {
  const auto group = [] {
    return std::vector<Tensor>{full(rank(), rank()), ::torch::full({rank() + 1}, 10 * rank(), i64),
                               ::torch::scalar_tensor(rank() + 1, f32),
                               ::torch::zeros({0, 3}, ::torch::kBool),
                               weights(2, rank() + 1.0).t()};
  };
  std::vector<Tensor> rows;
  std::vector<Tensor> integers;
  std::vector<Tensor> columns;
  for (int r = 0; r < size(); ++r) {
    rows.push_back(full(r, r));
    integers.push_back(::torch::full({r + 1}, 10 * r, i64));
    columns.push_back(weights(2, r + 1.0).t());
  }
  const auto expect_all = [&](const std::vector<Tensor>& results) {
    ASSERT_EQ(results.size(), 5U);
    expect_same(results[0], ::torch::cat(rows));
    expect_same(results[1], ::torch::cat(integers));
    expect_same(results[2], ::torch::arange(1, size() + 1, f32));
    expect_same(results[3], ::torch::zeros({0, 3}, ::torch::kBool));
    expect_same(results[4], ::torch::cat(columns));
  };
  expect_all(grouped_allgather(group(), {.name = "rows"}));
  expect_all(grouped_allgather(group()));
  expect_all(grouped_allgather_async(group()).get());
}

// Nine rows, one row fewer than ranks, and no rows.
TEST_F(GroupsTest, ScatterWhatIsReduced) {
  const std::int64_t few = size() - 1;
  const auto group = [&] {
    return std::vector<Tensor>{weights(2 * size() + 1, rank() + 1.0),
                               ::torch::arange(few, i64) + rank(), ::torch::zeros({0, 3}, f32),
                               weights(2, rank() + 1.0).t()};
  };
  const double sum = mean_rank() * size();
  const std::int64_t sum_of_ranks = size() * (size() - 1) / 2;
  const auto expect_own = [&](const std::vector<Tensor>& results) {
    ASSERT_EQ(results.size(), 4U);
    expect_same(results[0], own_rows(weights(2 * size() + 1, sum)));
    expect_same(results[1], own_rows(::torch::arange(few, i64) * size() + sum_of_ranks));
    expect_same(results[2], ::torch::zeros({0, 3}, f32));
    expect_same(results[3], own_rows(weights(2, sum).t()));
  };
  expect_own(grouped_reducescatter(group(), {.name = "rows", .op = ReduceOp::sum}));
  expect_own(grouped_reducescatter_async(group(), {.op = ReduceOp::sum}).get());

  const auto means = grouped_reducescatter({weights(3, rank() + 1.0), full(1, rank() + 1.0)},
                                           {.prescale = 2.0, .postscale = 3.0});
  expect_close(means[0], own_rows(weights(3, 6.0 * mean_rank())));
  expect_close(means[1], own_rows(full(1, 6.0 * mean_rank())));
}

TEST_F(GroupsTest, WhatCannotBeDoneIsRefusedAsAWhole) {
  const auto refused = [](const auto& call) -> std::string {
    return error_of<InvalidArgument>(call).what();
  };
  const Tensor scalar = ::torch::scalar_tensor(1.0);
  const Tensor sparse = full(1, 1.0).to_sparse();
  EXPECT_THAT(refused([] { static_cast<void>(grouped_allgather({})); }),
              HasSubstr("at least one tensor"));
  EXPECT_THAT(refused([] { static_cast<void>(grouped_reducescatter({})); }),
              HasSubstr("at least one tensor"));
  EXPECT_THAT(refused([&] {
                static_cast<void>(grouped_reducescatter({full(1, 0.0), scalar}));
              }),
              HasSubstr("a scalar has no rows"));
  EXPECT_THAT(refused([&] {
                static_cast<void>(grouped_allgather({full(1, 0.0), sparse}, {.name = "g"}));
              }),
              HasSubstr("'g': sparse tensors"));
  EXPECT_THAT(refused([&] { static_cast<void>(grouped_reducescatter_async({sparse}).get()); }),
              HasSubstr("sparse tensors"));
  expect_close(allreduce(full(1, rank() + 1.0)), full(1, mean_rank()));
}

TEST_F(GroupsTest, RanksThatDisagreeGetAMismatch) {
  if (size() == 1) return;
  const bool other = rank() == size() - 1;
  const Tensor b = ::torch::zeros({2, other ? 3 : 2}, other ? f32 : f64);
  error_of<Mismatch>([&] { static_cast<void>(grouped_allgather({full(1, 0.0), b})); });
  error_of<Mismatch>([&] { static_cast<void>(grouped_reducescatter({full(1, 0.0), b})); });
  expect_close(grouped_allgather({full(1, 2.0)}).front(), full(size(), 2.0));
}

// In the following tests, rank r's loss is the sum of its results times weights times (r + 1), and
// the gradient is that of the sum of all losses.

TEST_F(GroupGradientsTest, OfAllreduce) {
  Tensor x = full(3, 1.0).requires_grad_();
  Tensor y = full(1, 1.0).requires_grad_();
  const auto results = grouped_allreduce({x, y, full(2, 1.0)}, {.op = ReduceOp::sum});
  EXPECT_FALSE(results[2].requires_grad());
  ((results[0] * weights(3, rank() + 1.0)).sum() + results[1].sum() * 5.0).backward();
  expect_close(x.grad(), weights(3, mean_rank() * size()));
  expect_close(y.grad(), full(1, 5.0 * size()));
}

// Rank r has r + 1 rows of x, and n - r of y.
TEST_F(GroupGradientsTest, OfAllgather) {
  const std::int64_t rows = size() * (size() + 1) / 2;
  const std::int64_t before = rank() * size() - rank() * (rank() - 1) / 2;
  const double sum = mean_rank() * size();
  for (const std::string name : {"", "group"}) {
    Tensor x = full(rank() + 1, 1.0).requires_grad_();
    Tensor y = full(size() - rank(), 1.0).to(f32).requires_grad_();
    Tensor scalar = ::torch::scalar_tensor(1.0, f64).requires_grad_();
    Tensor nothing = full(0, 1.0).requires_grad_();
    Tensor unused = full(1, 1.0).requires_grad_();
    const auto results = grouped_allgather(
        {x, full(1, 1.0), y, ::torch::zeros({2}, i64), scalar, nothing, unused}, {.name = name});
    EXPECT_FALSE(results[1].requires_grad());
    EXPECT_FALSE(results[3].requires_grad());
    const Tensor factors = ::torch::arange(1, size() + 1, f64) * (rank() + 1.0);
    ((results[0] * weights(rows, rank() + 1.0)).sum() +
     (results[2] * weights(rows, rank() + 1.0)).sum() + (results[4] * factors).sum() +
     results[5].sum())
        .backward();
    expect_same(x.grad(), weights(rows, sum).narrow(0, rank() * (rank() + 1) / 2, rank() + 1));
    expect_same(y.grad(), weights(rows, sum).narrow(0, before, size() - rank()).to(f32));
    expect_same(scalar.grad(), ::torch::scalar_tensor((rank() + 1.0) * sum, f64));
    expect_same(nothing.grad(), full(0, 0.0));
    EXPECT_FALSE(unused.grad().defined());
  }
}

TEST_F(GroupGradientsTest, OfReducescatter) {
  const std::int64_t rows = 2 * size() + 1;
  for (const auto op : {ReduceOp::sum, ReduceOp::average}) {
    Tensor x = full(rows, 1.0).requires_grad_();
    Tensor one = full(1, 1.0).to(f32).requires_grad_();
    Tensor nothing = full(0, 1.0).requires_grad_();
    const auto results =
        grouped_reducescatter({full(3, 1.0), x, one, nothing},
                              {.name = "group", .op = op, .prescale = 3.0, .postscale = 0.5});
    EXPECT_FALSE(results[0].requires_grad());
    const auto loss_of = [](const Tensor& result) {
      return (result * weights(result.size(0), rank() + 1.0)).sum();
    };
    (loss_of(results[1]) + loss_of(results[2]) + loss_of(results[3])).backward();
    const double scale = 1.5 / (op == ReduceOp::average ? size() : 1.0);
    expect_close(x.grad(), gathered_weights(rows) * scale);
    EXPECT_EQ(one.grad().scalar_type(), f32);
    expect_close(one.grad(), weights(1, scale), 1e-6);
    expect_same(nothing.grad(), full(0, 0.0));
  }
}

TEST_F(GroupGradientsTest, OfAProcessSet) {
  if (size() == 1) return;
  const ProcessSet pair = add_process_set({0, size() - 1});
  if (pair.rank() < 0) return;
  const double sum = size() + 1.0;  // sum of the members' weights
  Tensor x = full(2, rank()).requires_grad_();
  const Tensor all = grouped_allgather({x}, {.process_set = pair}).front();
  (all * weights(4, rank() + 1.0)).sum().backward();
  expect_close(x.grad(), weights(4, sum).narrow(0, 2 * pair.rank(), 2));

  Tensor y = full(2, rank() + 1.0).requires_grad_();
  const Tensor own = grouped_reducescatter({y}, {.process_set = pair}).front();
  expect_close(own.detach(), full(1, sum / 2.0));
  (own * (rank() + 1.0)).sum().backward();
  expect_close(y.grad(), ::torch::cat({full(1, 0.5), full(1, size() / 2.0)}));
}

TEST_F(GroupGradientsTest, OfOtherReductionsAreRefused) {
  Tensor x = full(size(), rank()).requires_grad_();
  const Tensor y = grouped_reducescatter({x}, {.op = ReduceOp::max}).front();
  expect_close(y.detach(), full(1, size() - 1));
  EXPECT_THAT(error_of<InvalidArgument>([&] { y.sum().backward(); }).what(), HasSubstr("max"));
}

TEST_F(GroupGradientsTest, AreNotRecordedWithoutNeed) {
  const Tensor x = full(size(), 1.0).requires_grad_();
  EXPECT_FALSE(grouped_allgather_async({x}).get().front().requires_grad());
  EXPECT_FALSE(grouped_reducescatter_async({x}).get().front().requires_grad());
  const ::torch::NoGradGuard no_grad;
  EXPECT_FALSE(grouped_allgather({x}).front().requires_grad());
  EXPECT_FALSE(grouped_reducescatter({x}).front().requires_grad());
}

}  // namespace
}  // namespace kolo::internal::testing_support
