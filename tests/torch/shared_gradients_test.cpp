// SPDX-License-Identifier: Apache-2.0
// Gradients in memory that the ranks of the host share.
#include "support.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <thread>

#include "kolo/shared_memory.hpp"
#include "node/shared_memory.hpp"

namespace kolo::internal::testing_support {
namespace {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;

class SharedGradientsTest : public TorchTest {
 protected:
  SharedGradientsTest() {
    ::torch::manual_seed(1);
    model_ = nn::Sequential(nn::Linear(40, 50), nn::Tanh(), nn::Linear(50, 30));
  }

  void SetUp() override {
    if (heap_ == nullptr) GTEST_SKIP() << "the ranks cannot share memory";
  }

  [[nodiscard]] bool is_shared(const ::torch::Tensor& tensor) const {
    const auto memory = heap_->memory();
    const auto* const data = static_cast<const std::byte*>(tensor.data_ptr());
    return !std::less<>()(data, memory.data()) &&
           std::less<>()(data, memory.data() + memory.size());
  }
  [[nodiscard]] ::torch::Tensor loss() {
    const ::torch::Tensor x = ::torch::arange(80, ::torch::kFloat32).reshape({2, 40});
    return model_->forward(::torch::sin(x * (rank() + 1))).square().mean();
  }
  template <typename Optimizer>
  void train(Optimizer& optimizer) {
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      loss().backward();
      loss().backward();
      optimizer.step();
    }
  }
  [[nodiscard]] ::torch::Tensor first() { return model_->parameters().front(); }

  const std::shared_ptr<node::SharedHeap> heap_ = detail::shared_heap();
  nn::Sequential model_;
};

TEST_F(SharedGradientsTest, AreWhereOtherRanksReadThemIfTheyAreLarge) {
  std::optional<SharedGradients> shared(std::in_place, *model_);
  DistributedOptimizer optimizer(optim::SGD(model_->parameters(), 0.1));
  EXPECT_EQ(shared->bytes(), 0);
  train(optimizer);
  const std::vector<::torch::Tensor> parameters = model_->parameters();
  for (const ::torch::Tensor& parameter : parameters) {
    EXPECT_EQ(is_shared(parameter.grad()), parameter.nbytes() >= 4096) << parameter.sizes();
    EXPECT_FALSE(is_shared(parameter));
  }
  EXPECT_FALSE(is_shared(::torch::zeros({1500}))) << "as large as a parameter, but no gradient";
  const std::size_t bytes = shared->bytes();
  EXPECT_GE(bytes, 2000 * sizeof(float));
  train(optimizer);
  EXPECT_EQ(shared->bytes(), bytes) << "what is freed is used again";

  const ::torch::Tensor gradient = first().grad();
  const ::torch::Tensor before = gradient.clone();
  shared.reset();
  EXPECT_TRUE(is_shared(gradient));
  EXPECT_TRUE(::torch::equal(gradient, before));
  train(optimizer);
  optimizer.zero_grad();
  first().mutable_grad().reset();
  loss().backward();
  EXPECT_FALSE(is_shared(first().grad()));
  expect_same_bits_on_all_ranks(model_->parameters());
}

TEST_F(SharedGradientsTest, GiveTheSameBits) {
  const auto trained = [&](bool is_shared, const auto& with_optimizer) {
    nn::Sequential kept =
        std::exchange(model_, std::dynamic_pointer_cast<nn::SequentialImpl>(model_->clone()));
    std::optional<SharedGradients> shared;
    if (is_shared) shared.emplace(*model_);
    with_optimizer();
    return flat(std::exchange(model_, kept)->parameters());
  };
  const auto expect_alike = [&](const auto& with_optimizer) {
    const ::torch::Tensor without = trained(false, with_optimizer);
    EXPECT_TRUE(same_bits(without, trained(true, with_optimizer)));
    EXPECT_FALSE(::torch::equal(without, flat(model_->parameters())));
  };
  expect_alike([&] {
    DistributedOptimizer optimizer(optim::Adam(model_->parameters(), 0.01),
                                   {.backward_passes_per_step = 2, .num_groups = 2});
    train(optimizer);
  });
  expect_alike([&] {
    const DistributedGradients gradients(*model_);
    optim::SGD optimizer(model_->parameters(), 0.1);
    train(optimizer);
  });
  for (const Sharding sharding : {Sharding::state, Sharding::state_and_gradients}) {
    expect_alike([&] {
      ShardedOptimizer optimizer(optim::Adam(model_->parameters(), 0.01),
                                 model_->named_parameters(), {}, sharding);
      train(optimizer);
    });
  }
}

TEST_F(SharedGradientsTest, OfTwoModulesAndAfterTheSession) {
  ::torch::Tensor of_other;
  {
    const SharedGradients shared(*model_);
    nn::Linear other(70, 70);
    const SharedGradients of_both(*other);
    const SharedGradients again(*model_);
    other->forward(::torch::ones({1, 70})).sum().backward();
    loss().backward();
    EXPECT_TRUE(is_shared(other->weight.grad()));
    EXPECT_TRUE(is_shared(first().grad()));
    of_other = other->weight.grad();
  }
  shutdown();
  EXPECT_TRUE(::torch::equal(of_other, ::torch::ones({70, 70})));
  of_other.add_(1.0);
  EXPECT_EQ(of_other.sum().item<float>(), 2.0F * 70 * 70);
  EXPECT_THROW(SharedGradients{*model_}, NotInitialized);
  init();
}

// Makes a gradient as large as the first parameter's.
::torch::Tensor gradient_of(double value) {
  const ::torch::Tensor weight = ::torch::zeros({2000}, ::torch::kFloat32).set_requires_grad(true);
  (weight * value).sum().backward();
  return weight.grad();
}

TEST_F(SharedGradientsTest, AreAllocatedAndFreedOnAnyThread) {
  const SharedGradients shared(*model_);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([this, thread] {
      ::torch::Tensor last;
      for (int round = 0; round < 50; ++round) {
        const double value = 50.0 * thread + round;
        const ::torch::Tensor next = gradient_of(value);
        EXPECT_TRUE(is_shared(next));
        if (last.defined()) {
          EXPECT_EQ(last[1999].item<double>(), value - 1);
        }
        last = next;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(shared.bytes(), 4 * 4 * 2000 * sizeof(float));
}

TEST_F(SharedGradientsTest, MayBeFreedInAForkedChildWhileOthersAreAllocated) {
  const SharedGradients shared(*model_);
  ::torch::Tensor gradient = gradient_of(1.0);
  ::torch::Tensor state = gradient.clone();
  EXPECT_FALSE(is_shared(state));
  std::atomic<bool> ends{false};
  std::thread other([&] {
    while (!ends) (void)gradient_of(2.0);
  });
  for (int i = 0; i < 30; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      gradient.reset();
      state = ::torch::zeros({2000}, ::torch::kFloat32);
      ::_exit(0);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  ends = true;
  other.join();
  EXPECT_TRUE(is_shared(gradient));
}

}  // namespace
}  // namespace kolo::internal::testing_support
