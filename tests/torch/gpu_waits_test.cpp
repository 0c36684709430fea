// SPDX-License-Identifier: Apache-2.0
// Training steps on GPUs, whose results are those on CPUs, and how often they wait for the GPU.
#include "support.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <type_traits>
#include <vector>

#include "gpu_on_host.hpp"

namespace kolo::internal::testing_support {
namespace {

namespace optim = ::torch::optim;
using ::torch::Tensor;
using ::torch::nn::Linear;
using ::torch::nn::Sequential;
using ::torch::nn::Tanh;

constexpr double infinity = std::numeric_limits<double>::infinity();

Sequential make_model(const ::torch::Device& device) {
  ::torch::manual_seed(3);
  Sequential model(Linear(12, 41), Tanh(), Linear(41, 3));
  model->to(device);
  return model;
}

/// The input of one step of this rank. Those of the others are different.
Tensor input(int step, const ::torch::Device& device) {
  ::torch::manual_seed(static_cast<std::uint64_t>(100 * rank() + step));
  return ::torch::randn({7, 12}).to(device);
}

Tensor loss_of(Sequential& model, const Tensor& x) { return model->forward(x).square().sum(); }

optim::SGD sgd(Sequential& model) {
  return optim::SGD(model->parameters(), optim::SGDOptions(0.05).momentum(0.9));
}

constexpr int steps = 5;

/// Whose gradients a training zeroes, in their memory.
enum class Zeroed : std::uint8_t { of_optimizer, of_module };

/// The parameters after a training, and how often the host waited for the GPU in each step.
struct Result {
  std::vector<Tensor> parameters;
  std::vector<int> waits;
};

/// Trains with an optimizer of this kind. `step`: from the loss to the optimizer's step.
template <typename Optimizer>
Result train(const ::torch::Device& device, Zeroed zeroed,
             const std::function<void(Optimizer&, const Tensor&, int)>& step) {
  Sequential model = make_model(device);
  Optimizer optimizer(sgd(model), model->named_parameters());
  Result result;
  std::vector<Tensor> inputs;
  for (int i = 0; i < steps; ++i) inputs.push_back(input(i, device));
  for (int i = 0; i < steps; ++i) {
    const int before = waits_for_gpu();
    step(optimizer, loss_of(model, inputs[static_cast<std::size_t>(i)]), i);
    if (zeroed == Zeroed::of_optimizer)
      optimizer.zero_grad();
    else
      model->zero_grad(/*set_to_none=*/false);
    result.waits.push_back(waits_for_gpu() - before);
  }
  for (const Tensor& parameter : model->parameters())
    result.parameters.push_back(parameter.detach().cpu());
  return result;
}

/// Trains on the CPU and on the GPU. Each step waits `waits` times, and the results have the same
/// bits.
template <typename Optimizer>
void expect_same_bits(int waits, const std::function<void(Optimizer&, const Tensor&, int)>& step,
                      Zeroed zeroed = Zeroed::of_optimizer) {
  const Result expected = train<Optimizer>(::torch::kCPU, zeroed, step);
  const Result found = train<Optimizer>(local_device(), zeroed, step);
  for (std::size_t i = 0; i < expected.parameters.size(); ++i)
    EXPECT_TRUE(::torch::equal(found.parameters[i], expected.parameters[i])) << i;
  EXPECT_THAT(found.waits, testing::Each(waits));
}

/// A DistributedOptimizer and two kinds of ShardedOptimizer, over NCCL.
template <typename Optimizer>
class GpuWaits : public TorchTest {};

struct ShardedState : ShardedOptimizer<optim::SGD> {
  template <typename Names>
  ShardedState(optim::SGD&& base, const Names& names)
      : ShardedOptimizer(std::move(base), names, {}, Sharding::state) {}
};
using Optimizers =
    testing::Types<DistributedOptimizer<optim::SGD>, ShardedOptimizer<optim::SGD>, ShardedState>;
TYPED_TEST_SUITE(GpuWaits, Optimizers);

TYPED_TEST(GpuWaits, PlainSteps) {
  expect_same_bits<TypeParam>(0, [](TypeParam& optimizer, const Tensor& loss, int) {
    loss.backward();
    optimizer.step();
  });
}

/// The step has used the gradients up, so nobody asks the GPU what they are now. But divided
/// gradients are the shards', and follow what the module does to its own: one look at all of them.
TYPED_TEST(GpuWaits, GradientsMayBeZeroedThroughTheModule) {
  const int looks = std::is_same_v<TypeParam, ShardedOptimizer<optim::SGD>> ? 1 : 0;
  const auto step = [&](TypeParam& optimizer, const Tensor& loss, int number) {
    const int before = waits_for_gpu();
    loss.backward();
    optimizer.step();
    EXPECT_EQ(waits_for_gpu() - before, number == 0 ? 0 : looks);
  };
  static_cast<void>(train<TypeParam>(local_device(), Zeroed::of_module, step));
}

TYPED_TEST(GpuWaits, ClippedSteps) {
  for (const double type : {2.0, 3.0, infinity})
    for (const double max_norm : {0.05, 1e6})
      expect_same_bits<TypeParam>(0, [=](TypeParam& optimizer, const Tensor& loss, int) {
        loss.backward();
        const Tensor norm = clip_grad_norm_on_device(optimizer, max_norm, {.norm_type = type});
        EXPECT_EQ(norm.scalar_type(), ::torch::kDouble);
        EXPECT_EQ(norm.device().type(), loss.device().type());
        optimizer.step();
      });
}

TYPED_TEST(GpuWaits, TheNormForTheHostIsOneWait) {
  expect_same_bits<TypeParam>(1, [](TypeParam& optimizer, const Tensor& loss, int) {
    loss.backward();
    EXPECT_GT(clip_grad_norm(optimizer, 0.05), 0.05);
    optimizer.step();
  });
}

/// The gradients of one rank overflow in one step, which all ranks skip.
TYPED_TEST(GpuWaits, ScaledStepsWaitOnce) {
  GradScaler scaler({.initial = 1024.0, .growth_interval = 2});
  const double initial = scaler.loss_scale();
  for (const bool clips : {false, true}) {
    expect_same_bits<TypeParam>(1, [&](TypeParam& optimizer, const Tensor& loss, int step) {
      if (step == 0) scaler = GradScaler({.initial = initial, .growth_interval = 2});
      const bool overflows = step == 2 && rank() == size() - 1;
      scaler.scale(overflows ? loss * infinity : loss).backward();
      const int before = waits_for_gpu();
      if (clips) {
        scaler.unscale(optimizer);
        static_cast<void>(clip_grad_norm_on_device(optimizer, 0.05));
      }
      EXPECT_EQ(waits_for_gpu(), before);
      EXPECT_EQ(scaler.step(optimizer), step != 2);
      scaler.update();
    });
    EXPECT_EQ(scaler.loss_scale(), 2.0 * initial);
  }
}

/// Gradients of every type, also of a parameter without dimensions.
std::vector<Tensor> make_gradients(const ::torch::Device& device) {
  ::torch::manual_seed(7);
  std::vector<Tensor> parameters;
  for (const auto type : {::torch::kFloat, ::torch::kDouble, ::torch::kBFloat16, ::torch::kHalf})
    for (const std::int64_t elements : {0, 1, 1000}) {
      Tensor gradient = ::torch::randn({elements}, ::torch::kDouble).to(type);
      if (elements == 1) gradient = gradient.reshape({});
      Tensor parameter = ::torch::zeros_like(gradient).to(device).set_requires_grad(true);
      parameter.mutable_grad() = gradient.to(device);
      parameters.push_back(parameter);
    }
  return parameters;
}

class GpuGradients : public TorchTest {};

/// Products are rounded once, also those of two-byte types. LibTorch's product of such a tensor on
/// the CPU rounds the factor too.
TEST_F(GpuGradients, OfAllTypesAreClipped) {
  for (const double max_norm : {1.0, 1e9}) {
    optim::SGD on_cpu(make_gradients(::torch::kCPU), 0.1);
    optim::SGD on_gpu(make_gradients(local_device()), 0.1);
    const std::vector<Tensor> before = make_gradients(::torch::kCPU);
    const int waits = waits_for_gpu();
    const Tensor norm = clip_grad_norm_on_device(on_gpu, max_norm);
    EXPECT_EQ(waits_for_gpu(), waits);
    EXPECT_EQ(norm.item<double>(), clip_grad_norm(on_cpu, max_norm));
    const double factor = std::min(1.0, max_norm / (norm.item<double>() + 1e-6));
    for (std::size_t i = 0; i < before.size(); ++i) {
      const Tensor found = on_gpu.param_groups()[0].params()[i].grad().cpu();
      const bool is_half = found.element_size() == 2;
      const Tensor expected =
          is_half ? (before[i].grad().to(::torch::kFloat) * factor).to(found.scalar_type())
                  : on_cpu.param_groups()[0].params()[i].grad();
      EXPECT_TRUE(::torch::equal(found, expected)) << i;
    }
  }
}

TEST_F(GpuGradients, BesideGradientsOnCpusAreClippedToo) {
  std::vector<Tensor> parameters;
  for (const auto& device : {::torch::Device(::torch::kCPU), local_device()}) {
    parameters.push_back(::torch::zeros({1}, device).set_requires_grad(true));
    parameters.back().mutable_grad() = ::torch::full({1}, device.is_cpu() ? 4.0 : 5.0, device);
  }
  optim::SGD optimizer(parameters, 0.1);
  const Tensor norm = clip_grad_norm_on_device(optimizer, 0.5);  // of 4 and 5
  EXPECT_TRUE(norm.is_cuda());
  for (const Tensor& parameter : parameters)
    EXPECT_NEAR(parameter.grad().item<double>(),
                (parameter.is_cpu() ? 4.0 : 5.0) * 0.5 / std::sqrt(41.0), 1e-6);
}

TEST_F(GpuGradients, ThatAreNotFiniteCanBeRefused) {
  Tensor parameter = ::torch::zeros({2}, local_device()).set_requires_grad(true);
  parameter.mutable_grad() = ::torch::full({2}, infinity, local_device());
  optim::SGD optimizer({parameter}, 0.1);
  EXPECT_THROW(
      static_cast<void>(clip_grad_norm_on_device(optimizer, 1.0, {.refuse_nonfinite = true})),
      Error);
  EXPECT_EQ(clip_grad_norm_on_device(optimizer, 1.0).item<double>(), infinity);
}

TEST_F(GpuGradients, OfSynchronizedNormalizationsWaitForNothing) {
  ::torch::manual_seed(3);
  Sequential model(Linear(12, 5), SyncBatchNorm(5), Linear(5, 3));
  model->to(local_device());
  DistributedOptimizer optimizer(sgd(model), model->named_parameters());
  const Tensor x = input(0, local_device());
  for (int step = 0; step < 3; ++step) {
    const int before = waits_for_gpu();
    loss_of(model, x).backward();
    optimizer.step();
    optimizer.zero_grad();
    EXPECT_EQ(waits_for_gpu(), before);
  }
}

}  // namespace
}  // namespace kolo::internal::testing_support
