// SPDX-License-Identifier: Apache-2.0
// SyncBatchNorm computes what BatchNorm computes on the batches of all ranks together.
#include "support.hpp"  // first, as clang 14 needs it

#include <ATen/record_function.h>

#include <atomic>
#include <memory>
#include <string_view>

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
using testing::HasSubstr;
using ::torch::Tensor;

using SyncBatchNormTest = TorchTest;

constexpr std::int64_t channels = 3;

// Rank r has r + 1 examples.
std::int64_t first_row() { return rank() * (rank() + 1) / 2; }
std::int64_t own_rows() { return rank() + 1; }
std::int64_t all_rows() { return size() * (size() + 1) / 2; }

Tensor mine(const Tensor& whole) { return whole.narrow(0, first_row(), own_rows()); }

// Equal on all ranks.
Tensor random_batch(int seed, std::vector<std::int64_t> shape) {
  ::torch::manual_seed(static_cast<std::uint64_t>(seed));
  shape.insert(shape.begin(), {all_rows() + 1, channels});
  return (::torch::randn(shape, f64) * 3.0 + 50.0).narrow(0, 0, all_rows());
}

template <typename Norm>
void set_parameters(Norm& norm) {
  norm->to(f64);
  const ::torch::NoGradGuard no_grad;
  if (norm->weight.defined()) norm->weight.copy_(values({0.5, -1.0, 2.0}));
  if (norm->bias.defined()) norm->bias.copy_(values({1.0, 2.0, 3.0}));
}

Tensor summed(const Tensor& tensor) { return allreduce(tensor, {.op = ReduceOp::sum}); }

// Trains both modules on three batches and compares results and state.
template <typename Reference>
void compare(const nn::BatchNormOptions& options, const std::vector<std::int64_t>& shape) {
  Reference reference(options);
  SyncBatchNorm norm(options);
  set_parameters(reference);
  set_parameters(norm);
  for (int step = 0; step < 3; ++step) {
    Tensor whole = random_batch(step, shape).requires_grad_();
    Tensor share = mine(whole).detach().clone().requires_grad_();
    const Tensor factors = random_batch(100 + step, shape) - 50.0;
    const Tensor expected = reference->forward(whole);
    const Tensor actual = norm->forward(share);
    expect_close(actual.detach(), mine(expected).detach(), 1e-10);
    (expected.pow(2) * factors).sum().backward();
    (actual.pow(2) * mine(factors)).sum().backward();
    expect_close(share.grad(), mine(whole.grad()), 1e-9);
  }
  if (options.affine()) {
    const double scale = reference->weight.grad().abs().max().template item<double>();
    expect_close(summed(norm->weight.grad()), reference->weight.grad(), 1e-12 * scale);
    expect_close(summed(norm->bias.grad()), reference->bias.grad(), 1e-12 * scale);
  }
  if (!options.track_running_stats()) return;
  expect_close(norm->running_mean, reference->running_mean, 1e-10);
  expect_close(norm->running_var, reference->running_var, 1e-10);
  EXPECT_EQ(norm->num_batches_tracked.template item<std::int64_t>(), 3);
  reference->eval();
  norm->eval();
  const Tensor example = random_batch(200, shape).narrow(0, 0, rank() == 0 ? 0 : 1);
  if (rank() != 0) {  // alone: evaluation is local
    expect_close(norm->forward(example).detach(), reference->forward(example).detach(), 1e-10);
  }
}

TEST_F(SyncBatchNormTest, EqualsBatchNormOnTheWholeBatch) {
  compare<nn::BatchNorm2d>(nn::BatchNormOptions(channels), {4, 5});
  compare<nn::BatchNorm1d>(nn::BatchNormOptions(channels).eps(0.1), {7});
  compare<nn::BatchNorm3d>(nn::BatchNormOptions(channels).momentum(0.5), {2, 3, 2});
}

TEST_F(SyncBatchNormTest, TakesTheOptionsOfBatchNorm) {
  compare<nn::BatchNorm2d>(nn::BatchNormOptions(channels).affine(false), {2, 2});
  compare<nn::BatchNorm2d>(nn::BatchNormOptions(channels).momentum(c10::nullopt), {2, 2});
  compare<nn::BatchNorm2d>(nn::BatchNormOptions(channels).track_running_stats(false), {2, 2});
}

/// Counts the numbers that this thread reads from tensors while the object lives: for a number of a
/// GPU, the host waits until the GPU is done.
class CountReads {
 public:
  CountReads()
      : handle_(at::addGlobalCallback(at::RecordFunctionCallback(
            [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
              if (std::string_view(function.name()) == "aten::_local_scalar_dense") ++reads;
              return nullptr;
            }))) {
    reads = 0;
  }
  ~CountReads() { at::removeCallback(handle_); }
  CountReads(const CountReads&) = delete;
  CountReads& operator=(const CountReads&) = delete;

  [[nodiscard]] int count() const { return reads; }

 private:
  static inline std::atomic<int> reads{0};
  at::CallbackHandle handle_;
};

TEST_F(SyncBatchNormTest, ReadsNoNumberOfTheDevice) {
  for (const auto momentum : {c10::optional<double>(0.1), c10::optional<double>()}) {
    SyncBatchNorm norm(nn::BatchNormOptions(channels).momentum(momentum));
    set_parameters(norm);
    const Tensor share = mine(random_batch(1, {4, 5})).detach().clone().requires_grad_();
    const CountReads reads;
    norm->forward(share).sum().backward();
    EXPECT_EQ(reads.count(), 0);
  }
}

TEST_F(SyncBatchNormTest, WorksWithOneExampleEach) {
  if (size() == 1) return;
  SyncBatchNorm norm(channels);
  norm->to(f64);
  const Tensor x = ::torch::full({1, channels}, rank() + 1.0, f64);
  const double variance = (size() * size() - 1) / 12.0;  // variance of 1, 2, ..., size
  const double expected = (rank() + 1 - mean_rank()) / std::sqrt(variance + 1e-5);
  expect_close(norm->forward(x).detach(), ::torch::full({1, channels}, expected, f64), 1e-10);
}

TEST_F(SyncBatchNormTest, ARankMayHaveNoExamples) {
  if (size() == 1) return;
  const bool has_none = rank() == size() - 1;
  nn::BatchNorm1d reference(channels);
  SyncBatchNorm norm(channels);
  set_parameters(reference);
  set_parameters(norm);
  ::torch::manual_seed(5);
  Tensor whole = ::torch::randn({2 * (size() - 1), channels}, f64).requires_grad_();
  Tensor share = whole.detach().narrow(0, has_none ? 0 : 2 * rank(), has_none ? 0 : 2).clone();
  share.requires_grad_();
  reference->forward(whole).pow(3).sum().backward();
  norm->forward(share).pow(3).sum().backward();
  if (!has_none) expect_close(share.grad(), whole.grad().narrow(0, 2 * rank(), 2), 1e-9);
  expect_close(summed(norm->weight.grad()), reference->weight.grad(), 1e-9);
  expect_close(norm->running_var, reference->running_var, 1e-10);
}

TEST_F(SyncBatchNormTest, LargeMeansLoseNothingInFloat32) {
  SyncBatchNorm norm(1);
  const Tensor x = ::torch::tensor({4096.0F, 4097.0F}).view({2, 1}) + static_cast<float>(rank());
  const double variance = (size() * size() - 1) / 12.0 + 0.25;
  const Tensor expected = (x.to(f64) - (4096.5 + (size() - 1) / 2.0)) / std::sqrt(variance + 1e-5);
  expect_close(norm->forward(x).detach().to(f64), expected, 5e-3);
  expect_close(norm->running_var.to(f64),
               values({0.9 + 0.1 * variance * 2.0 * size() / (2.0 * size() - 1.0)}), 1e-6);
}

TEST_F(SyncBatchNormTest, HasASecondDerivative) {
  nn::BatchNorm1d reference(channels);
  SyncBatchNorm norm(channels);
  set_parameters(reference);
  set_parameters(norm);
  const auto penalty_gradient = [](auto& module, const Tensor& input, const Tensor& factors) {
    Tensor x = input.detach().clone().requires_grad_();
    const Tensor loss = (module->forward(x).pow(2) * factors).sum();
    const auto slope = ::torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true,
                                               /*create_graph=*/true);
    slope.front().pow(2).sum().backward();
    return x.grad();
  };
  const Tensor whole = random_batch(1, {4}) - 50.0;
  const Tensor factors = random_batch(2, {4}) - 50.0;
  const Tensor expected = penalty_gradient(reference, whole, factors);
  const Tensor actual = penalty_gradient(norm, mine(whole), mine(factors));
  const double scale = expected.abs().max().item<double>();
  EXPECT_GT(scale, 0.01);
  expect_close(actual, mine(expected), 1e-10 * scale);
  expect_close(summed(norm->weight.grad()), reference->weight.grad(), 1e-9 * scale);
}

TEST_F(SyncBatchNormTest, SeveralWorkInOneModel) {
  const auto build = [](auto make_norm) {
    ::torch::manual_seed(11);
    nn::Sequential model;
    model->push_back("conv", nn::Conv2d(nn::Conv2dOptions(channels, channels, 3).padding(1)));
    model->push_back("norm1", make_norm());
    model->push_back("relu", nn::ReLU());
    model->push_back("norm2", make_norm());
    model->to(f64);
    return model;
  };
  auto reference = build([] { return nn::BatchNorm2d(channels); });
  auto model = build([] { return SyncBatchNorm(channels); });
  const Tensor whole = random_batch(3, {4, 4});
  const Tensor factors = random_batch(4, {4, 4});
  (reference->forward(whole) * factors).sum().backward();
  (model->forward(mine(whole)) * mine(factors)).sum().backward();
  const auto expected = reference->parameters();
  const auto actual = model->parameters();
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    expect_close(summed(actual[i].grad()), expected[i].grad(), 1e-8);
  }
}

TEST_F(SyncBatchNormTest, OnlyTheProcessSetIsTogether) {
  if (size() == 1) return;
  const ProcessSet others = add_process_set({size() - 1});
  SyncBatchNorm norm(nn::BatchNormOptions(channels), others);
  nn::BatchNorm1d local(channels);
  set_parameters(norm);
  set_parameters(local);
  const Tensor x = random_batch(6, {4}).narrow(0, 0, 2) + rank();
  expect_close(norm->forward(x).detach(), local->forward(x).detach(), 1e-10);
  expect_close(norm->running_var, local->running_var, 1e-10);
}

TEST_F(SyncBatchNormTest, RefusesWhatHasNoVariance) {
  SyncBatchNorm norm(channels);
  const Tensor one = ::torch::ones({rank() == 0 ? 1 : 0, channels});
  EXPECT_THAT(error_of<InvalidArgument>([&] { static_cast<void>(norm->forward(one)); }).what(),
              HasSubstr("1 values per channel"));
  error_of<InvalidArgument>([&] { static_cast<void>(norm->forward(::torch::ones({2, 4}))); });
  error_of<InvalidArgument>([&] { static_cast<void>(norm->forward(::torch::ones({2}))); });
}

TEST_F(SyncBatchNormTest, ReplacesBatchNormInASequence) {
  nn::Sequential model;
  model->push_back("conv", nn::Conv2d(nn::Conv2dOptions(channels, channels, 1)));
  model->push_back("norm", nn::BatchNorm2d(nn::BatchNormOptions(channels).eps(0.5)));
  model->to(f64);
  model->forward(random_batch(8, {2, 2}));  // statistics that are not the initial ones
  auto converted = convert_sync_batchnorm(model);
  ASSERT_EQ(converted->size(), 2U);
  const auto norm = converted->ptr<SyncBatchNormImpl>(1);
  EXPECT_DOUBLE_EQ(norm->options.eps(), 0.5);
  const auto expected = model->named_parameters();
  const auto actual = converted->named_parameters();
  ASSERT_EQ(actual.keys(), expected.keys());
  for (const auto& item : actual) EXPECT_TRUE(item.value().is_same(expected[item.key()]));
  EXPECT_TRUE(norm->weight.is_same(expected["norm.weight"]));
  EXPECT_TRUE(same_bits(norm->running_mean, model->named_buffers()["norm.running_mean"]));

  const Tensor whole = random_batch(9, {2, 2});
  expect_close(converted->forward(mine(whole)).detach(), mine(model->forward(whole)).detach(),
               1e-10);
}

struct BlockImpl : nn::Module {
  nn::BatchNorm2d inner{register_module("inner", nn::BatchNorm2d(channels))};
  Tensor forward(const Tensor& x) { return inner->forward(x); }
};

TEST_F(SyncBatchNormTest, DoesNotConvertHalfAModel) {
  nn::Sequential model;
  model->push_back("block", std::make_shared<BlockImpl>());
  EXPECT_THAT(
      error_of<InvalidArgument>([&] { static_cast<void>(convert_sync_batchnorm(model)); }).what(),
      HasSubstr("'block.inner'"));
}

}  // namespace
}  // namespace kolo::internal::testing_support
